"""The site's own broker as the deliverer's local exchange: one connection, a channel an exchange.

Each exchange has its own channel, because a publish to a missing exchange closes the channel and
puts in doubt everything else in flight there. The lock is an exclusive queue on this very
connection, or on a cluster a lease: the broker takes publishes from its holder.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from relay import crash_points
from relay.bulk_amqp import (
    BulkAmqpError,
    Channel,
    ChannelClosed,
    Cluster,
    Connection,
    ConnectionClosed,
    Message,
    MessageUnsendable,
    Publication,
    Publisher,
    PublishOutcome,
    connect,
)
from relay.bulk_amqp.connection import HEARTBEAT_S
from relay.delivery.local_exchange import (
    Answer,
    DelivererLockHeld,
    ExchangeMissing,
    ExchangeRefused,
    LocalClosed,
    Outgoing,
)
from relay.delivery.stamped_messages import AddressedMessages, StampedMessages
from relay.lease import ClusterLease, LeaseHeld, LeaseName

log = logging.getLogger(__name__)

_ACCESS_REFUSED = 403
_NOT_FOUND = 404
_RESOURCE_LOCKED = 405
_PRECONDITION_FAILED = 406
_TOO_LARGE = re.compile(r"message size \d+ .*larger than .*?(\d+)")
_BLOCKED_POLL_S = 0.25


@dataclass(slots=True)
class _Opened:
    """Channel of one exchange."""

    channel: Channel
    publisher: Publisher
    publications: int = 0
    is_proven: bool = False
    """True once a publication was answered whole: the user may write here."""


class RabbitExchange:
    """LocalExchange over RabbitMQ, made by `open_exchange`."""

    def __init__(self, connection: Connection, lease: ClusterLease | None = None) -> None:
        self._connection = connection
        self._lease = lease
        self._closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._opened: dict[str, _Opened] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._unanswered = 0
        """Publications without an answer to each of their messages."""
        self._watch = asyncio.create_task(self._wait_closed(), name="local exchange: watch")

    @property
    def closed(self) -> asyncio.Future[str]:
        return self._closed

    @property
    def blocked(self) -> bool:
        return self._connection.blocked is not None

    @property
    def is_answered(self) -> bool:
        return not self._unanswered

    async def publish(
        self,
        exchange: str,
        messages: Sequence[Outgoing],
        *,
        timeout_s: float,
        on_sent: Callable[[object], None] | None = None,
    ) -> list[Answer]:
        try:
            opened = await self._open(exchange)
            publication = self._hand_over(opened, exchange, messages)
        except MessageUnsendable as error:
            rest = [*messages[: error.index], *messages[error.index + 1 :]]
            answers = await self.publish(exchange, rest, timeout_s=timeout_s) if rest else []
            return [*answers[: error.index], Answer.UNSENDABLE, *answers[error.index :]]
        except (ConnectionClosed, ConnectionError) as error:
            raise LocalClosed(str(error)) from error
        except ChannelClosed as error:
            self._forget(exchange)
            if error.code == _NOT_FOUND:
                raise ExchangeMissing(exchange) from error
            raise LocalClosed(str(error)) from error
        if on_sent is not None:
            on_sent(opened)
        return await self._answers(opened, exchange, messages, publication, timeout_s)

    def publish_next(
        self,
        exchange: str,
        messages: Sequence[Outgoing],
        *,
        channel: object,
        timeout_s: float,
    ) -> Coroutine[Any, Any, list[Answer]] | None:
        opened = self._opened.get(exchange)
        if opened is None or opened is not channel or not opened.is_proven:
            return None
        try:
            publication = self._hand_over(opened, exchange, messages)
        except (MessageUnsendable, ChannelClosed, ConnectionClosed, ConnectionError):
            return None  # `publish` says what it is
        return self._answers(opened, exchange, messages, publication, timeout_s)

    def _hand_over(
        self, opened: _Opened, exchange: str, messages: Sequence[Outgoing]
    ) -> Publication:
        """Publish. Raises MessageUnsendable, ChannelClosed, ConnectionClosed, with nothing sent."""
        if self._lease is not None and not self._lease.is_held:
            # A process that was stopped for long gets here before learning of the loss.
            self._connection.abort("the deliverer's lease is over")
        publication = _publish(opened.publisher, exchange, messages)
        self._unanswered += 1
        opened.publications += 1
        crash_points.reach("delivery.sent")
        return publication

    async def _answers(
        self,
        opened: _Opened,
        exchange: str,
        messages: Sequence[Outgoing],
        publication: Publication,
        timeout_s: float,
    ) -> list[Answer]:
        """Wait for the answers. Raises ExchangeRefused."""
        publisher = opened.publisher
        waiting = publisher.outcome(publication)
        timed_out = await self._wait(waiting, timeout_s)
        if timed_out:
            # Nobody waits for an answer from now on; closing the channel leaves no doubt about
            # the publish to which a later answer belongs.
            channel = publisher.channel
            if (
                self._opened.get(exchange) is opened
            ):  # otherwise another flow gave up the channel already
                self._forget(exchange)
            closing = asyncio.ensure_future(channel.close())
            outcome = await waiting
            await asyncio.wait({closing})
            if closing.exception() is not None and not self._connection.close_reason:
                # The messages are in doubt, which LocalClosed would deny.
                log.warning(
                    "a channel did not close: %s",
                    closing.exception(),
                    extra={"event": "channel-not-closed"},
                )
        else:
            outcome = waiting.result()
            if outcome.nacked and self._opened.get(exchange) is opened:
                # RabbitMQ 3.10 refuses, for the channel's whole life, every message to a quorum
                # queue whose leader was dead at the channel's first message for the queue.
                self._forget(exchange)
            if self._opened.get(exchange) is not opened and not publisher.unconfirmed_messages:
                await publisher.channel.close()
            if _no_right(opened, len(outcome.unknown) == len(messages)):
                raise ExchangeRefused(exchange)
            opened.is_proven = opened.is_proven or not outcome.unknown
        if not outcome.unknown:
            self._unanswered -= 1
        answers = [Answer.CONFIRMED] * len(messages)
        most_bytes = most_body_bytes(publisher.channel.close_reason)
        for sequence in outcome.returned:
            answers[sequence - outcome.first] = Answer.UNROUTED
        for sequence in outcome.nacked:
            answers[sequence - outcome.first] = Answer.REFUSED
        for sequence in outcome.unknown:
            index = sequence - outcome.first
            fits = most_bytes is None or len(messages[index].body) <= most_bytes
            answers[index] = Answer.UNKNOWN if fits else Answer.UNSENDABLE
        return answers

    async def close(self) -> None:
        if self._lease is not None:
            await self._lease.release()
        await self._connection.close()
        await self._watch

    async def _open(self, exchange: str) -> _Opened:
        """Return the exchange's channel; a new channel first checks that the exchange is there."""
        async with self._opening.setdefault(exchange, asyncio.Lock()):
            known = self._opened.get(exchange)
            if known is not None and known.channel.close_reason is None:
                return known
            channel = await self._connection.channel()
            await channel.declare_exchange(exchange, passive=True)
            publisher = Publisher(channel)
            await publisher.start()
            self._opened[exchange] = opened = _Opened(channel, publisher)
            return opened

    def _forget(self, exchange: str) -> None:
        self._opened.pop(exchange, None)

    async def _wait(self, waiting: asyncio.Future[PublishOutcome], timeout_s: float) -> bool:
        """Wait for the outcome; True if time ran out, which stands still while blocked."""
        left = timeout_s
        while left > 0:
            step = _BLOCKED_POLL_S if self.blocked else left
            done, _ = await asyncio.wait({waiting}, timeout=step)
            if done:
                return False
            if not self.blocked:
                left -= step
        return True

    async def _wait_closed(self) -> None:
        reason = await self._connection.wait_closed()
        if not self._closed.done():
            self._closed.set_result(str(reason))


def _publish(publisher: Publisher, exchange: str, messages: Sequence[Outgoing]) -> Publication:
    """Publish, by frames of the native core where it has stamped the messages."""
    if isinstance(messages, StampedMessages):
        channel = publisher.channel
        frames = messages.frames(exchange, channel.number, channel.writer.largest)
        if frames is not None:
            data = frames[0] if len(frames) == 1 else b"".join(frames)
            return publisher.publish_frames(
                data, len(messages), AddressedMessages(exchange, messages)
            )
    batch: list[Message] = [(exchange, *message) for message in messages]
    return publisher.publish_many(batch, mandatory=True)


def _no_right(opened: _Opened, nothing_answered: bool) -> bool:
    """True if the broker took nothing of this publication because the user may not write there.

    Decided only for the first publication on its channel, while alone there: a later publication
    may have been taken before the right was withdrawn. Such a later publication is in doubt, and
    its repetition is the first on the next channel.
    """
    reason = opened.channel.close_reason
    return (
        isinstance(reason, ChannelClosed)
        and reason.code == _ACCESS_REFUSED
        and nothing_answered
        and opened.publications == 1
    )


def most_body_bytes(reason: Exception | None) -> int | None:
    """The broker's size limit, if a larger message made the broker close the channel, else None."""
    if not isinstance(reason, ChannelClosed) or reason.code != _PRECONDITION_FAILED:
        return None
    match = _TOO_LARGE.search(reason.text)
    return int(match[1]) if match else None


async def open_exchange(
    uri: str | Cluster,
    *,
    lock: str,
    name: str,
    ssl_context: ssl.SSLContext | None = None,
    lease: LeaseName | None = None,
    heartbeat_s: int = HEARTBEAT_S,
) -> RabbitExchange:
    """Connect and take the site's lock (an exclusive queue called `lock`), or the lease.

    Raises DelivererLockHeld when another node has the lock, LocalClosed when the broker is
    unreachable.
    """
    try:
        connection = await connect(uri, name=name, ssl_context=ssl_context, heartbeat=heartbeat_s)
    except (BulkAmqpError, OSError) as error:
        raise LocalClosed(str(error)) from error
    try:
        if lease is not None:
            held = lease.on(connection)
            await held.take()
            return RabbitExchange(connection, held)
        channel = await connection.channel()
        await channel.declare_queue(lock, exclusive=True, auto_delete=True)
    except LeaseHeld as error:
        await connection.close()
        raise DelivererLockHeld(error.lease) from error
    except ChannelClosed as error:
        await connection.close()
        if error.code == _RESOURCE_LOCKED:
            raise DelivererLockHeld(lock) from error
        raise LocalClosed(str(error)) from error
    except (BulkAmqpError, OSError) as error:
        await connection.close()
        raise LocalClosed(str(error)) from error
    return RabbitExchange(connection)
