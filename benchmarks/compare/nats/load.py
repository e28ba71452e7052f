"""Both ends of a measurement at NATS servers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence

from benchmarks.compare.nats.config import CONSUMER, STREAM, subject_of
from benchmarks.compare.nats.connection import NatsConnection
from benchmarks.compare.nats.wire import LoadWriter, Message, acknowledgements, publication
from isthmus.load.messages import Bodies
from isthmus.load.sink import RunArrivals
from isthmus.load.source import RunSource

_BATCH = 1000
"""Messages of a pull: as many as may be unacknowledged at a consumer's defaults."""
_PULL_S = 30.0
"""Seconds after which the server ends a pull that nothing came for."""
_LEFT = re.compile(rb"Nats-Pending-Messages: (\d+)")
_LOOK_S = 1.0


class NatsSource(RunSource):
    """Publisher that has many messages under way, each acknowledged by the stream."""

    def __init__(self, uri: str, run: bytes, origin: int, bodies: Bodies, key: bytes) -> None:
        super().__init__(run, origin, bodies)
        self._uri, self._subject = uri, subject_of(key)
        self._connection: NatsConnection | None = None
        self._writer: LoadWriter | None = None
        self._answered = asyncio.Event()

    async def open(self) -> None:
        """Connect. Raises OSError."""
        self._connection = await NatsConnection.open(self._uri)
        answers = self._connection.subscribe("acks", self._take)
        self._writer = LoadWriter(self._subject, answers, self._run, self._origin)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def confirm(self) -> None:
        """Wait until the stream has answered for all messages. Raises ConnectionError."""
        await self._until_unanswered(0)

    async def _publish(self, times_ns: list[int]) -> None:
        assert self._connection is not None
        assert self._writer is not None
        tails = self._bodies.take(len(times_ns))
        self._connection.write(self._writer.publications(self.sent, times_ns, tails))
        self.sent += len(times_ns)
        await self._connection.drain()
        await self._until_unanswered(self._window // self._bodies.mean_bytes)

    async def _until_unanswered(self, most: int) -> None:
        assert self._connection is not None
        while self.unanswered > most:
            if self._connection.ended is not None:
                raise ConnectionError(f"the connection to NATS has ended: {self._connection.ended}")
            self._answered.clear()
            try:
                await asyncio.wait_for(self._answered.wait(), _LOOK_S)
            except TimeoutError:
                continue  # looks whether the connection has ended

    def _take(self, messages: Sequence[Message]) -> None:
        refused = sum(b'"error"' in message.payload for message in messages)
        self.refused += refused
        self.confirmed += len(messages) - refused
        self._answered.set()


class NatsSink(RunArrivals):
    """Pull consumer that acknowledges each message explicitly, a batch of arrivals at a time."""

    def __init__(self, uri: str) -> None:
        super().__init__(bytes(8))
        self._uri = uri
        self._connection: NatsConnection | None = None
        self._inbox = b""
        self._wanted = 0
        """Messages pulled and not come."""

    async def consume(self) -> None:
        """Connect, and pull from now on. Raises OSError."""
        self._connection = await NatsConnection.open(self._uri)
        self._connection.on_ended = self._end
        self._inbox = self._connection.subscribe("pulled", self._take)
        self._pull()

    def _end(self, reason: Exception) -> None:
        self.ended = reason

    def _pull(self) -> None:
        assert self._connection is not None
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{CONSUMER}".encode()
        while self._wanted <= _BATCH // 2:
            body = json.dumps({"batch": _BATCH, "expires": int(_PULL_S * 1e9)}).encode()
            self._connection.write(publication(subject, body, self._inbox))
            self._wanted += _BATCH

    def _take(self, messages: Sequence[Message]) -> None:
        assert self._connection is not None
        came = [message for message in messages if message.payload]
        for message in messages:
            if not message.payload:
                self._note_status(message.header)
        self.count([(b"", message.payload) for message in came])
        self._wanted -= len(came)
        if came:
            self._connection.write(acknowledgements(came))
        self._pull()

    def _note_status(self, header: bytes) -> None:
        """Take the end of a pull that time or the server brought."""
        left = _LEFT.search(header)
        if left is None:
            self.ended = ConnectionError(f"NATS ends a pull: {header.decode().strip()}")
            self._wanted = 0
        else:
            self._wanted -= int(left[1])
