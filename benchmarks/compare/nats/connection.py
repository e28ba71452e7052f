"""Connection to a NATS server."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, cast
from urllib.parse import urlsplit

from benchmarks.compare.nats.wire import Message, NatsServerError, Parser, publication

_REQUESTS = b"1"
"""Subscription of the answers to requests; others count from 2."""
_OPTIONS = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}
_ANSWER_WITHIN_S = 10.0

Take = Callable[[Sequence[Message]], None]


class JetStreamError(Exception):
    """Refusal of a request by JetStream."""


class NatsConnection(asyncio.Protocol):
    """Connection without verbose answers; `ended` is the reason of its end, or None."""

    def __init__(self) -> None:
        self.ended: Exception | None = None
        self.on_ended: Callable[[Exception], None] = lambda _: None
        self.inbox = b"_INBOX." + os.urandom(11).hex().encode()
        """Prefix of the connection's own subjects."""
        self._parser = Parser()
        self._takers: dict[bytes, Take] = {_REQUESTS: self._answer}
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, uri: str) -> Self:
        """Connect to `nats://host:port`. Raises OSError."""
        host, port = urlsplit(uri).hostname, urlsplit(uri).port
        assert host is not None
        assert port is not None
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(cls, host, port)
        connection.write(b"CONNECT %s\r\nPING\r\n" % json.dumps(_OPTIONS).encode())
        connection.write(b"SUB %s.requests %s\r\n" % (connection.inbox, _REQUESTS))
        return connection

    def subscribe(self, name: str, take: Take) -> bytes:
        """Give the messages of a subject of the connection's own to `take`; return the subject."""
        sid = b"%d" % (len(self._takers) + 1)
        self._takers[sid] = take
        subject = b"%s.%s" % (self.inbox, name.encode())
        self.write(b"SUB %s %s\r\n" % (subject, sid))
        return subject

    def write(self, operations: bytes) -> None:
        """Send operations. Raises ConnectionError when the connection has ended."""
        if self.ended is not None:
            raise ConnectionError(f"the connection to NATS has ended: {self.ended}")
        assert self._transport is not None
        self._transport.write(operations)

    async def drain(self) -> None:
        """Wait while the server is slow to read."""
        await self._may_write.wait()

    async def request(self, subject: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return JetStream's answer, one request at a time. Raises JetStreamError, and
        TimeoutError.
        """
        reply = self.inbox + b".requests"
        self.write(publication(subject.encode(), json.dumps(body).encode(), reply))
        async with asyncio.timeout(_ANSWER_WITHIN_S):
            payload = await self._answers.get()
        answer: dict[str, Any] = json.loads(payload) if payload else {}
        if not payload or "error" in answer:
            raise JetStreamError(f"{subject}: {answer.get('error', 'nobody answers')}")
        return answer

    async def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an instance, where the loop is uvloop's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        pings = self._parser.pings
        try:
            messages = self._parser.feed(data)
        except NatsServerError as error:
            self.ended = error
            return
        if wanted := self._parser.pings - pings:
            self.write(b"PONG\r\n" * wanted)
        by_sid: dict[bytes, list[Message]] = {}
        for message in messages:
            by_sid.setdefault(message.sid, []).append(message)
        for sid, taken in by_sid.items():
            self._takers[sid](taken)

    def connection_lost(self, reason: Exception | None) -> None:
        self.ended = self.ended or reason or ConnectionError("closed")
        self.on_ended(self.ended)
        self._may_write.set()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def _answer(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._answers.put_nowait(message.payload)
