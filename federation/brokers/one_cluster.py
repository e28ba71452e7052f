"""Test whether all addresses of a site lead to one cluster.

RabbitMQ's name of a cluster does not decide: by default each node gives its own. But a queue
declared at one node is known to its whole cluster, so a queue with the life of this test, declared
over one connection, is looked for over all others.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from aio_pika.abc import AbstractConnection
from aio_pika.exceptions import AMQPException
from aiormq.exceptions import ChannelLockedResource, ChannelNotFoundEntity

from federation.brokers.addresses import AmqpAddress, ManagementAddress
from federation.brokers.amqp_client import amqp_client
from federation.brokers.management import ManagementApi, ManagementError

ONE_CLUSTER = (
    "a site is one cluster: take the others' addresses out; a broker apart is a site of its own"
)
"""Remedy where there are several clusters."""
WITHIN_S = 10.0
_KNOWN_WITHIN_S = 3.0
"""Wait until all nodes know of a queue: since 4.0 some may be a moment late."""
_LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """Answer of the node at one address. `cluster` is the node's name of its cluster."""

    address: str
    cluster: str = ""
    why_not: str = ""
    """Reason why the node could not answer; empty if there was an answer."""
    is_stranger: bool = False
    """True if the node does not know the queue declared at the first node that answered."""


def several_clusters(answers: Sequence[NodeAnswer]) -> str:
    """Describe addresses outside the first address's cluster; empty if there are none."""
    first = next((answer.address for answer in answers if not answer.why_not), "")
    strangers = [answer for answer in answers if answer.is_stranger]
    if not strangers:
        return ""
    named = ", ".join(
        f"{answer.address} (which calls itself {answer.cluster!r})"
        if answer.cluster
        else answer.address
        for answer in strangers
    )
    return f"of another cluster than {first}: {named}"


async def node_answers(
    amqp: AmqpAddress, management: ManagementAddress | None, prefix: str
) -> list[NodeAnswer]:
    """Ask every AMQP and management address, in their order. `prefix` begins the queue's name; the
    user of `amqp` must have the right to declare the queue. Raises TlsUnusable.
    """
    queue = f"{prefix}one-cluster.{secrets.token_hex(8)}"
    async with AsyncExitStack() as stack:
        addresses = [amqp.at(endpoint) for endpoint in amqp.endpoints]
        nodes = await asyncio.gather(*map(_connected, addresses))
        for node in nodes:
            if isinstance(node, AbstractConnection):
                await stack.enter_async_context(node)
        known = [node for node in nodes if isinstance(node, AbstractConnection)]
        why_not = await _declared(known[0], queue) if known else "no AMQP address answers"
        answers = [
            await _amqp_answer(address.where, node, queue, why_not)
            for address, node in zip(addresses, nodes, strict=True)
        ]
        if management is not None:
            alone = [replace(management, url=url, other_urls=()) for url in management.urls]
            answers += [await _management_answer(address, queue, why_not) for address in alone]
    return answers


async def _connected(address: AmqpAddress) -> AbstractConnection | str:
    """Return a connection, or a text with the reason why there is none."""
    try:
        return await amqp_client(address, "isthmus: one cluster?", WITHIN_S)
    except (AMQPException, OSError) as error:
        return str(error) or "no answer in time"


async def _declared(node: AbstractConnection, queue: str) -> str:
    """Declare the queue; return the reason of a failure, else an empty text."""
    try:
        channel = await node.channel()
        await channel.declare_queue(queue, exclusive=True, auto_delete=True)
    except AMQPException as error:
        return f"{queue} cannot be declared: {error}"
    return ""


async def _amqp_answer(
    address: str, node: AbstractConnection | str, queue: str, why_not: str
) -> NodeAnswer:
    if isinstance(node, str):
        return NodeAnswer(address, why_not=node)
    name = _cluster_name(node)
    if why_not:
        return NodeAnswer(address, name, why_not)

    async def knows() -> bool:
        channel = await node.channel()
        try:
            await channel.declare_queue(queue, passive=True)
        except ChannelNotFoundEntity:
            return False
        except ChannelLockedResource:
            return True
        return True  # at the node with the queue

    try:
        return NodeAnswer(address, name, is_stranger=not await _soon(knows))
    except (AMQPException, OSError) as error:
        return NodeAnswer(address, name, str(error))


async def _management_answer(address: ManagementAddress, queue: str, why_not: str) -> NodeAnswer:
    try:
        async with ManagementApi(address, timeout_s=WITHIN_S) as api:

            async def knows() -> bool:
                return await api.get("queues", api.vhost, queue) is not None

            if why_not:
                return NodeAnswer(address.url, why_not=why_not)
            return NodeAnswer(address.url, is_stranger=not await _soon(knows))
    except ManagementError as error:
        return NodeAnswer(address.url, why_not=error.reason)


async def _soon(knows: Callable[[], Awaitable[bool]]) -> bool:
    clock = asyncio.get_running_loop().time
    limit = clock() + _KNOWN_WITHIN_S
    while not (is_known := await knows()) and clock() < limit:
        await asyncio.sleep(_LOOK_EVERY_S)
    return is_known


def _cluster_name(connection: AbstractConnection) -> str:
    transport = connection.transport
    properties = transport.connection.server_properties if transport is not None else {}
    name = properties.get("cluster_name", "")
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)
