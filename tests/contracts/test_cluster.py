"""Expectations of a RabbitMQ cluster of three nodes, on whatever release runs."""

from __future__ import annotations

import asyncio
from typing import Any

import aio_pika
import aiohttp
import pytest
from aio_pika.exceptions import DeliveryError

from isthmus.brokers.local_brokers import LocalBroker
from tests.conftest import ClusterFactory, Eventually
from tests.live_brokers import ADMIN, START_WITHIN_S, api
from tests.waiting import until

MADE_WITHIN_S = 60.0
CONFIRMED_WITHIN_S = 5.0
QUORUM = {"x-queue-type": "quorum", "x-quorum-initial-group-size": 3}
STREAM = {"x-queue-type": "stream", "x-initial-cluster-size": 3}


@pytest.mark.slow
async def test_three_nodes_started_at_once_are_one_cluster_and_keep_queues_over_a_kill(
    cluster_factory: ClusterFactory, eventually: Eventually
) -> None:
    cluster = await cluster_factory()
    first, second, third = cluster.nodes
    assert await running_nodes(first) == {spec.node_name for spec in cluster.specs}

    await declare(first, "quorum", QUORUM)
    await declare(second, "stream", STREAM)
    for queue in ("quorum", "stream"):
        await eventually(
            lambda q=queue: has_online(third, q, 3), f"three of {queue}", deadline_s=60
        )
    await publish(first, "quorum", b"before")

    first.kill()
    await eventually(lambda: has_online(third, "quorum", 2), "a member less", deadline_s=60)
    await publish(second, "quorum", b"amid")
    await publish(third, "stream", b"amid")

    await first.start(deadline_s=START_WITHIN_S)
    await eventually(lambda: has_online(first, "quorum", 3), "all members again", deadline_s=60)
    await eventually(lambda: has_online(first, "stream", 3), "all replicas again", deadline_s=60)
    assert await taken(first, "quorum", 2) == [b"before", b"amid"]


@pytest.mark.long
async def test_a_cluster_that_was_ended_in_order_comes_back_as_one(
    cluster_factory: ClusterFactory,
) -> None:
    cluster = await cluster_factory()
    await declare(cluster.nodes[0], "quorum", QUORUM)
    await publish(cluster.nodes[0], "quorum", b"kept")
    await cluster.stop()
    assert not any(node.is_running for node in cluster.nodes)

    await cluster.start(deadline_s=START_WITHIN_S)
    assert len(await running_nodes(cluster.nodes[2])) == 3
    assert await taken(cluster.nodes[2], "quorum", 1) == [b"kept"]


@pytest.mark.long
async def test_a_suspended_node_goes_on_where_it_was(
    cluster_factory: ClusterFactory, eventually: Eventually
) -> None:
    cluster = await cluster_factory()
    first, second, third = cluster.nodes
    await declare(first, "quorum", QUORUM)
    third.suspend()
    await publish(second, "quorum", b"amid")
    third.resume()
    await eventually(lambda: has_online(third, "quorum", 3), "all members again", deadline_s=60)
    assert await taken(third, "quorum", 1) == [b"amid"]


async def running_nodes(node: LocalBroker) -> set[str]:
    return {each["name"] for each in await api(node, "GET", "/nodes") if each["running"]}


async def has_online(node: LocalBroker, queue: str, count: int) -> bool:
    """True if that many members of the queue run, by the management API of one node."""
    try:
        told = await api(node, "GET", f"/queues/%2F/{queue}")
    except aiohttp.ClientError:
        return False  # its statistics come later than the queue
    return len(told.get("online", ())) == count


async def declare(node: LocalBroker, queue: str, arguments: dict[str, Any]) -> None:
    async with await aio_pika.connect(node.spec.amqp_uri(ADMIN)) as connection:
        channel = await connection.channel()
        await channel.declare_queue(queue, durable=True, arguments=arguments)


async def publish(node: LocalBroker, queue: str, body: bytes) -> None:
    """Publish until confirmed: a queue whose leader has just gone refuses, or says nothing."""
    await until(
        lambda: is_confirmed(node, queue, body), f"{queue} confirms", MADE_WITHIN_S, every_s=0.1
    )


async def is_confirmed(node: LocalBroker, queue: str, body: bytes) -> bool:
    async with await aio_pika.connect(node.spec.amqp_uri(ADMIN)) as connection:
        channel = await connection.channel()
        try:
            exchange = channel.default_exchange
            await exchange.publish(aio_pika.Message(body), queue, timeout=CONFIRMED_WITHIN_S)
        except (DeliveryError, TimeoutError):
            return False
        return True


async def taken(node: LocalBroker, queue: str, count: int) -> list[bytes]:
    """The next different messages of a queue: what was not confirmed may be there twice."""
    bodies: dict[bytes, None] = {}
    async with asyncio.timeout(MADE_WITHIN_S):
        async with await aio_pika.connect(node.spec.amqp_uri(ADMIN)) as connection:
            declared = await (await connection.channel()).get_queue(queue)
            async with declared.iterator() as messages:
                async for message in messages:
                    bodies[message.body] = None
                    await message.ack()
                    if len(bodies) == count:
                        break
    return list(bodies)
