"""Egress queues on RabbitMQ, over the bulk channel: one connection, one channel a queue.

One channel a queue because acknowledgements are cumulative on a channel. The lock is an exclusive
queue, which lives exactly as long as this connection (an exclusive *consumer* is not enforced on
quorum queues). On a cluster an exclusive queue may be lost, or left behind, with its node: there
the lock is a lease, on a connection of its own, since the main connection is not read while too
much is in hand. When either connection goes, both go.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Sequence

from relay.bulk_amqp import (
    AuthenticationFailed,
    BulkAmqpError,
    ChannelClosed,
    Cluster,
    ConnectionClosed,
    Consumer,
    connect,
)
from relay.bulk_amqp.channel import Channel
from relay.bulk_amqp.connection import HEARTBEAT_S, Connection
from relay.lease import ClusterLease, LeaseHeld, LeaseName
from relay.packing.comeback.returned_prefix import PREFETCH
from relay.packing.egress import (
    GOODBYE_S,
    PATIENT_GOODBYE_S,
    EgressClosed,
    EgressMessage,
    EgressRefused,
    PackerLockHeld,
    QueueMissing,
)

_NOT_FOUND = 404
_DOWN = "is down or inaccessible"
"""Words of RabbitMQ, with the same code, for a classic queue whose node does not run."""
_LOCKED = 405
_INTERNAL_ERROR = 541
_UNREADABLE = (
    "; if this repeats, a message published by AMQP 1.0 is one that the broker can give to no node:"
    " docs/clients.md has the way out"
)


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
    """Egress over RabbitMQ, made by `connect_egress`."""

    def __init__(
        self,
        connection: Connection,
        lock: str,
        *,
        lease: ClusterLease | None = None,
    ) -> None:
        self._connection = connection
        self._lock = lock
        self._lease = lease
        self._lock_channel: Channel | None = None
        self._closed: asyncio.Future[str] = connection.loop.create_future()
        self._watch = connection.loop.create_task(self._watch_connection())
        self._lease_watch = connection.loop.create_task(self._watch_lease())

    @property
    def closed(self) -> asyncio.Future[str]:
        return self._closed

    @property
    def blocked(self) -> bool:
        return self._connection.blocked is not None

    @property
    def returns_in_order(self) -> bool:
        return self._lease is None

    @property
    def bytes_heard(self) -> int:
        return self._connection.bytes_received

    async def take_lock(self) -> None:
        try:
            if self._lease is not None:
                await self._lease.take()
                return
            channel = await self._connection.channel()
            await channel.declare_queue(self._lock, exclusive=True)
        except LeaseHeld as error:
            raise PackerLockHeld(error.lease) from error
        except ChannelClosed as error:
            if error.code == _LOCKED:
                raise PackerLockHeld(self._lock) from error
            if error.code == _NOT_FOUND and self._lease is not None:
                raise QueueMissing(self._lease.name) from error
            raise EgressRefused(str(error)) from error
        except BulkAmqpError as error:
            raise EgressClosed(str(error)) from error
        self._lock_channel = channel

    async def consume(
        self,
        queue: str,
        on_messages: Callable[[Sequence[EgressMessage]], None],
        on_ended: Callable[[str], None],
    ) -> RabbitEgressQueue:
        try:
            channel = await self._connection.channel()
            consumer = Consumer(
                channel, queue, on_messages, on_ended=lambda error: on_ended(_said(error))
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

    async def close(self, *, patient: bool = False) -> None:
        # Acknowledgements count before anybody else may take the lease.
        try:
            await self._connection.close(PATIENT_GOODBYE_S if patient else GOODBYE_S)
            await self._watch
        finally:
            await self._give_lease_up()

    async def _give_lease_up(self) -> None:
        if self._lease is not None:
            try:
                await self._lease.release()
            finally:
                await self._lease.connection.close(GOODBYE_S)
        await self._lease_watch

    async def _watch_lease(self) -> None:
        if self._lease is not None:
            reason = await self._lease.connection.wait_closed()
            self._connection.abort(f"the packer's lease is gone: {reason}")

    async def _watch_connection(self) -> None:
        reason = await self._connection.wait_closed()
        if not self._closed.done():
            self._closed.set_result(_said(reason))


def _said(reason: BulkAmqpError) -> str:
    """Return why a consumption or a connection ended, with what the broker does not say."""
    is_internal = isinstance(reason, ConnectionClosed) and reason.code == _INTERNAL_ERROR
    return f"{reason}{_UNREADABLE}" if is_internal else str(reason)


async def connect_egress(
    uri: str | Cluster,
    lock: str,
    *,
    name: str,
    ssl_context: ssl.SSLContext | None = None,
    lease: LeaseName | None = None,
    heartbeat_s: int = HEARTBEAT_S,
) -> RabbitEgress:
    """Connect as the site's node. `lock` is the lock queue's name, the broker shows `name`, and a
    `lease` is taken in place of the lock where the broker has several nodes.

    Raises EgressClosed, EgressRefused (credentials).
    """
    connection = await _connect(uri, name, ssl_context, heartbeat_s)
    if lease is None:
        return RabbitEgress(connection, lock)
    with contextlib.ExitStack() as unfinished:
        unfinished.callback(connection.abort, "the connection for the lease could not be made")
        kept = await _connect(uri, f"{name} lease", ssl_context, heartbeat_s)
        unfinished.pop_all()
    return RabbitEgress(connection, lock, lease=lease.on(kept))


async def _connect(
    uri: str | Cluster, name: str, ssl_context: ssl.SSLContext | None, heartbeat_s: int
) -> Connection:
    try:
        return await connect(uri, name=name, ssl_context=ssl_context, heartbeat=heartbeat_s)
    except AuthenticationFailed as error:
        raise EgressRefused(str(error)) from error
    except BulkAmqpError as error:
        raise EgressClosed(str(error)) from error
