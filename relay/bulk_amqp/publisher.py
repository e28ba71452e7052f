"""Publisher of messages in bulk, which reports their outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from pamqp import commands

from relay.bulk_amqp.channel import Channel
from relay.bulk_amqp.confirms import ConfirmLedger, Publication, PublishOutcome
from relay.bulk_amqp.errors import BulkAmqpError, Misuse
from relay.bulk_amqp.frame_reader import Confirms, Returned
from relay.bulk_amqp.frame_writer import Message


class Publisher:
    """A publisher, alone on its channel.

    ``on_done`` is called once per read of the socket with the publications that the read completed,
    and once more with all that are left when the channel closes (their ``outcome`` has them
    ``unknown``). ``on_returned`` is called for each returned message, with its sequence number in
    confirm mode, 0 without. If a callback raises, the connection closes (CallbackFailed).

    Without ``confirms`` a publication's outcome is never known, and none is kept.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        confirms: bool = True,
        on_done: Callable[[list[Publication]], None] | None = None,
        on_returned: Callable[[int, Returned], None] | None = None,
    ) -> None:
        self.channel = channel
        self._ledger = ConfirmLedger() if confirms else None
        self._on_done = on_done
        self._on_returned = on_returned
        self._waiting: dict[Publication, asyncio.Future[PublishOutcome]] = {}
        self._started = False

    async def start(self) -> None:
        """Put the channel into confirm mode (if requested). Raises ConnectionClosed."""
        if self._started or self.channel.publisher is not None:
            raise Misuse("one publisher a channel, started once: open another channel")
        self.channel.check_open()
        self.channel.publisher = self
        if self._ledger is not None:
            await self.channel.request(commands.Confirm.Select(), commands.Confirm.SelectOk)
        self._started = True

    def publish_many(self, messages: Sequence[Message], *, mandatory: bool = False) -> Publication:
        """Hand ``messages`` (at least one) to the socket, in order; does not wait.

        All or nothing: if a message can never be sent, MessageUnsendable names it and none is sent.
        The sequence must not change until the publication is done. Memory is bounded by the caller:
        await ``drain()``, and look at ``unconfirmed_bytes``.

        Raises MessageUnsendable, Misuse, ChannelClosed, ConnectionClosed.
        """
        channel = self.channel
        self._check(len(messages))
        frames, big = channel.writer.frames(messages, mandatory=mandatory)
        if big:
            size = channel.connection.send_pieces(frames)
            return self._published(len(messages), size, messages if mandatory else None)
        return self.publish_frames(b"".join(frames), len(messages), messages if mandatory else None)

    def publish_frames(
        self, frames: bytes, count: int, messages: Sequence[Message] | None
    ) -> Publication:
        """Hand over `count` messages whose frames are made. `messages` are the same ones if they
        are mandatory; one of them is looked at only if it comes back.

        Raises Misuse, ChannelClosed, ConnectionClosed.
        """
        self._check(count)
        self.channel.connection.send(frames)
        return self._published(count, len(frames), messages)

    def _check(self, count: int) -> None:
        if not self._started or not count:
            raise Misuse("publish_many needs a started publisher and at least one message")
        self.channel.check_open()

    def _published(self, count: int, size: int, messages: Sequence[Message] | None) -> Publication:
        if self._ledger is None:
            return Publication(0, 0, size, 0.0, None)
        return self._ledger.published(count, size, self.channel.connection.loop.time(), messages)

    async def wait(self, publication: Publication) -> PublishOutcome:
        """Wait for the publication's outcome: nacked, returned, unknown. Time-outs are the
        caller's.
        """
        return await asyncio.shield(self.outcome(publication))

    def outcome(self, publication: Publication) -> asyncio.Future[PublishOutcome]:
        """Return the future of the publication's outcome, which several may wait for."""
        if self._ledger is None:
            raise Misuse("without confirms nobody says what became of a message")
        future = self._waiting.get(publication)
        if future is None:
            future = self.channel.connection.loop.create_future()
            if publication.outcome is not None:
                future.set_result(publication.outcome)
            else:
                self._waiting[publication] = future
        return future

    async def drain(self) -> None:
        """Wait while the socket takes no more (high-water mark). Raises ConnectionClosed."""
        await self.channel.connection.drain()

    @property
    def unconfirmed_messages(self) -> int:
        return self._ledger.unconfirmed_messages if self._ledger is not None else 0

    @property
    def unconfirmed_bytes(self) -> int:
        """Bytes on the wire, frames included."""
        return self._ledger.unconfirmed_bytes if self._ledger is not None else 0

    @property
    def oldest_unconfirmed_age(self) -> float:
        """Seconds that the oldest publication has waited for its last answer; 0 if none waits."""
        if self._ledger is None:
            return 0.0
        return self._ledger.oldest_unconfirmed_age(self.channel.connection.loop.time())

    # --- what the channel hands over ------------------------------------------------------------

    def take_confirms(self, confirms: Confirms) -> None:
        if self._ledger is not None:
            self._done(self._ledger.answered(confirms.positive, confirms.tags))

    def take_return(self, returned: Returned) -> None:
        sequence = 0
        if self._ledger is not None:
            _, sequence = self._ledger.returned(
                returned.exchange, returned.routing_key, returned.properties, returned.body
            )
        if self._on_returned is not None:
            self._on_returned(sequence, returned)

    def channel_closed(self, reason: BulkAmqpError) -> None:
        if self._ledger is not None:
            self._done(self._ledger.close())

    def _done(self, publications: list[Publication]) -> None:
        if not publications:
            return
        if self._waiting:
            for publication in publications:
                future = self._waiting.pop(publication, None)
                # Whoever waited may have been cancelled, and the future with it.
                if future is not None and publication.outcome is not None and not future.done():
                    future.set_result(publication.outcome)
        if self._on_done is not None:
            self._on_done(publications)
