"""Egress queues on RabbitMQ, over the bulk channel: one connection, one channel a queue.

One channel a queue because acknowledgements are cumulative on a channel. The lock is an exclusive
queue: it lives exactly as long as this connection, on any machine of a cluster (an exclusive
*consumer* is not enforced on quorum queues).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from relay.bulk_amqp import (
    AuthenticationFailed,
    BulkAmqpError,
    ChannelClosed,
    Cluster,
    Consumer,
    connect,
)
from relay.bulk_amqp.channel import Channel
from relay.bulk_amqp.connection import Connection
from relay.packing.egress import (
    EgressClosed,
    EgressMessage,
    EgressRefused,
    LockHeld,
    QueueMissing,
)
from relay.packing.returned_prefix import PREFETCH

_NOT_FOUND = 404
_DOWN = "is down or inaccessible"
"""What RabbitMQ says, with the same code, of a classic queue whose node does not run."""
_LOCKED = 405


class RabbitEgressQueue:
    """One consumer, alone on its channel."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def ack(self, tag: int) -> None:
        try:
            self._consumer.ack(tag)
        except BulkAmqpError as error:
            raise EgressClosed(str(error)) from error


class RabbitEgress:
    """Made by `connect_egress`."""

    def __init__(self, connection: Connection, lock: str, *, is_cluster: bool) -> None:
        self._is_cluster = is_cluster
        self._connection = connection
        self._lock = lock
        self._lock_channel: Channel | None = None
        self._closed: asyncio.Future[str] = connection.loop.create_future()
        self._watch = connection.loop.create_task(self._watch_connection())

    @property
    def closed(self) -> asyncio.Future[str]:
        return self._closed

    @property
    def blocked(self) -> bool:
        return self._connection.blocked is not None

    @property
    def returns_in_order(self) -> bool:
        return not self._is_cluster

    @property
    def bytes_heard(self) -> int:
        return self._connection.bytes_received

    async def take_lock(self) -> None:
        try:
            channel = await self._connection.channel()
            await channel.declare_queue(self._lock, exclusive=True)
        except ChannelClosed as error:
            if error.code == _LOCKED:
                raise LockHeld(self._lock) from error
            raise EgressRefused(str(error)) from error
        except BulkAmqpError as error:
            raise EgressClosed(str(error)) from error
        self._lock_channel = channel

    async def consume(
        self,
        queue: str,
        on_messages: Callable[[list[EgressMessage]], None],
        on_ended: Callable[[str], None],
    ) -> RabbitEgressQueue:
        try:
            channel = await self._connection.channel()
            consumer = Consumer(
                channel, queue, on_messages, on_ended=lambda error: on_ended(str(error))
            )
            await consumer.start(prefetch=PREFETCH)
        except ChannelClosed as error:
            if error.code == _NOT_FOUND:
                raise QueueMissing(queue, is_away=_DOWN in str(error)) from error
            raise EgressRefused(str(error)) from error
        except BulkAmqpError as error:
            raise EgressClosed(str(error)) from error
        return RabbitEgressQueue(consumer)

    def pause(self) -> None:
        self._connection.pause_reading(self)

    def resume(self) -> None:
        self._connection.resume_reading(self)

    async def close(self) -> None:
        await self._connection.close()
        await self._watch

    async def _watch_connection(self) -> None:
        reason = await self._connection.wait_closed()
        if not self._closed.done():
            self._closed.set_result(str(reason))


async def connect_egress(
    uri: str | Cluster,
    lock: str,
    *,
    name: str,
    ssl_context: ssl.SSLContext | None = None,
    is_cluster: bool = False,
) -> RabbitEgress:
    """Connect as the site's node. `lock` is the lock queue's name, `name` is shown by the broker,
    `is_cluster` says that the broker is of several nodes.

    Raises EgressClosed, EgressRefused (credentials).
    """
    try:
        connection = await connect(uri, name=name, ssl_context=ssl_context)
    except AuthenticationFailed as error:
        raise EgressRefused(str(error)) from error
    except BulkAmqpError as error:
        raise EgressClosed(str(error)) from error
    return RabbitEgress(connection, lock, is_cluster=is_cluster)
