"""Declaring, binding and unbinding over one AMQP connection, without knowledge of meshes.

A broker refuses by closing the channel, so every step takes the open channel or a new one. A broken
connection raises AMQPException or OSError to the caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from aio_pika.abc import AbstractConnection
from aiormq.abc import AbstractChannel
from aiormq.exceptions import (
    ChannelAccessRefused,
    ChannelClosed,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
)

from federation.brokers.addresses import AmqpAddress
from federation.brokers.amqp_client import amqp_client
from federation.brokers.apply_report import Item, ItemOutcome
from federation.brokers.cluster_arguments import as_there
from federation.brokers.provision import BindingDeclaration, ExchangeDeclaration, QueueDeclaration

CONNECT_TIMEOUT_S = 15.0
STEP_TIMEOUT_S = 30.0
"""Limit of one declaration: a broker that has just come back takes many seconds to elect leaders.
"""

_T = TypeVar("_T")
_MEND_EXCHANGE = (
    "make the mesh file say what is there; or, if nothing needs the present one any more, "
    "delete it and apply again"
)
_MEND_QUEUE = (
    "stop the site's node, move or drain what waits there, delete the queue and apply again"
)
_MEND_LOG = (
    "deleting it loses what neighbours have not got yet: wait until no link lags, stop the "
    "site's node, delete it and apply again"
)


@asynccontextmanager
async def declaring(address: AmqpAddress) -> AsyncIterator[Declarer]:
    """Open a connection for declaring. Raises AMQPException, OSError (TlsRefused is one),
    TimeoutError, TlsUnusable.
    """
    connection = await amqp_client(address, "isthmus apply", CONNECT_TIMEOUT_S)
    async with connection:
        yield Declarer(connection)


class Declarer:
    """Steps over one connection; each returns an Item for the report."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self._channel: AbstractChannel | None = None

    async def exchange(self, wanted: ExchangeDeclaration) -> Item:
        """Declare an exchange, or report how the present exchange differs."""

        async def declare(channel: AbstractChannel, *, passive: bool) -> object:
            return await channel.exchange_declare(
                wanted.name, exchange_type=wanted.type, durable=True, passive=passive
            )

        return await self._declared("exchange", wanted.name, declare, _MEND_EXCHANGE)

    async def queue(self, wanted: QueueDeclaration) -> Item:
        """Declare a queue, or report how the present queue differs; other members are no
        difference.
        """
        item = await self._queue(wanted)
        while item.outcome is ItemOutcome.DIFFERS and (there := as_there(wanted, item.detail)):
            item = await self._queue(wanted := there)
        return item

    async def _queue(self, wanted: QueueDeclaration) -> Item:
        async def declare(channel: AbstractChannel, *, passive: bool) -> object:
            return await channel.queue_declare(
                wanted.name, durable=True, passive=passive, arguments=dict(wanted.arguments)
            )

        is_log = wanted.arguments.get("x-queue-type") == "stream"
        mend = _MEND_LOG if is_log else _MEND_QUEUE
        return await self._declared("queue", wanted.name, declare, mend)

    async def bind(self, binding: BindingDeclaration) -> Item:
        """Bind; no effect if the binding exists."""

        async def step(channel: AbstractChannel) -> object:
            bind = channel.exchange_bind if binding.to_exchange else channel.queue_bind
            return await bind(binding.queue, binding.exchange, binding.key)

        return await self._step_item("binding", str(binding), step, ItemOutcome.CREATED)

    async def unbind(self, binding: BindingDeclaration) -> Item:
        """Unbind; no effect without the binding."""

        async def step(channel: AbstractChannel) -> object:
            unbind = channel.exchange_unbind if binding.to_exchange else channel.queue_unbind
            return await unbind(binding.queue, binding.exchange, binding.key)

        return await self._step_item("binding", str(binding), step, ItemOutcome.UNBOUND)

    async def waiting(self, queue: str) -> int | None:
        """Return the number of ready messages in a queue, or None without the queue. Raises
        ChannelClosed.
        """

        async def step(channel: AbstractChannel) -> int:
            return (await channel.queue_declare(queue, passive=True)).message_count or 0

        try:
            return await self._do(step)
        except ChannelNotFoundEntity:
            return None

    async def delete(self, queue: str) -> None:
        """Delete a queue or stream, if it is there. Raises ChannelClosed, TimeoutError."""

        async def step(channel: AbstractChannel) -> object:
            return await channel.queue_delete(queue)

        await self._do(step)

    async def _declared(
        self, kind: str, name: str, declare: Callable[..., Awaitable[object]], mend: str
    ) -> Item:
        try:
            await self._do(lambda channel: declare(channel, passive=True))
            outcome = ItemOutcome.THERE
        except ChannelNotFoundEntity:
            outcome = ItemOutcome.CREATED
        except (ChannelClosed, TimeoutError) as error:
            return _refused(kind, name, error)
        try:
            # If it is there already, the broker compares the attributes.
            await self._do(lambda channel: declare(channel, passive=False))
        except ChannelPreconditionFailed as error:
            return Item(kind, name, ItemOutcome.DIFFERS, _reason(error), mend)
        except (ChannelClosed, TimeoutError) as error:
            return _refused(kind, name, error)
        return Item(kind, name, outcome)

    async def _step_item(
        self,
        kind: str,
        name: str,
        step: Callable[[AbstractChannel], Awaitable[object]],
        outcome: ItemOutcome,
    ) -> Item:
        try:
            await self._do(step)
        except (ChannelClosed, TimeoutError) as error:
            return _refused(kind, name, error)
        return Item(kind, name, outcome)

    async def _do(self, step: Callable[[AbstractChannel], Awaitable[_T]]) -> _T:
        try:
            async with asyncio.timeout(STEP_TIMEOUT_S):
                if self._channel is None or self._channel.is_closed:
                    opened = await self._connection.channel(publisher_confirms=False)
                    self._channel = await opened.get_underlay_channel()
                return await step(self._channel)
        except TimeoutError:
            # A late answer would be taken for the next step's.
            self._channel = None
            raise


def _refused(kind: str, name: str, error: Exception) -> Item:
    if isinstance(error, ChannelAccessRefused):
        mend = "give the user configure, write and read rights on the virtual host"
    elif isinstance(error, TimeoutError):
        reason = f"no answer in {STEP_TIMEOUT_S:.0f} s"
        return Item(
            kind, name, ItemOutcome.FAILED, reason, "look into the broker's log; apply again"
        )
    else:
        mend = "mend what the broker says; apply again"
    return Item(kind, name, ItemOutcome.FAILED, _reason(error), mend)


def _reason(error: Exception) -> str:
    # The broker's text, without its number.
    return str(error.args[-1]) if error.args else type(error).__name__
