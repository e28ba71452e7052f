"""Appending and reading by the stream protocol, by the relay's own client."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.floors.amqp import BODY
from benchmarks.floors.site import Site
from relay.log.rabbit.leader_connection import open_connection
from relay.log.rabbit.stream_connection import (
    PUBLISHER,
    StreamConnection,
    StreamEdge,
)
from relay.log.rabbit.stream_frames import KEY_PUBLISH, Chunk, publish_frame
from relay.log.site_log import SiteLogError

_HEADER = struct.Struct(">IHHBIQBHII")
_DATA = b"\x00\x53\x75\xb0"
_OPEN_BATCH = 0x80


class _Listener:
    """Counts what comes, and gives a credit for each chunk."""

    def __init__(self, connection: StreamConnection) -> None:
        self.confirmed = self.read = self.chunks = 0
        self._connection = connection
        self._come = asyncio.Event()
        self._error: SiteLogError | None = None
        connection.attach(self)

    def on_confirm(self, ids: Sequence[int]) -> None:
        self.confirmed += len(ids)
        self._come.set()

    def on_chunk(self, chunk: Chunk) -> None:
        self._connection.give_credit(chunk.subscription, 1)
        self.read += chunk.end - chunk.first
        self.chunks += 1
        self._come.set()

    def on_metadata_update(self) -> None:
        pass

    def fail(self, error: SiteLogError) -> None:
        self._error = error
        self._come.set()

    async def more(self) -> None:
        self._come.clear()
        await self._come.wait()
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        await self._connection.goodbye()
        self._connection.abort("done")
        await self._connection.ended()


async def _open(site: Site, stream: str) -> tuple[StreamConnection, _Listener]:
    connection = await open_connection(
        site.stream, stream, heartbeat_s=10, name="floors", deadline_s=10.0
    )
    return connection, _Listener(connection)


@dataclass(frozen=True)
class Appending:
    """`records` a frame; `window` frames are unconfirmed at most.

    `packed`: a frame is one entry that holds all its records, with one confirm, as the protocol
    has it for small messages.
    """

    records: int = 256
    size: int = len(BODY)
    window: int = 16
    packed: bool = False

    async def run(self, site: Site, stream: str, count: int) -> None:
        connection, listener = await _open(site, stream)
        body = (BODY * (self.size // len(BODY) + 1))[: self.size]
        if self.size > len(BODY):
            body = os.urandom(self.size)
        records = [body] * self.records
        confirms = 1 if self.packed else self.records
        frames = -(-count // self.records)
        for number in range(frames):
            while number * confirms - listener.confirmed >= self.window * confirms:
                await listener.more()
            write = _packed if self.packed else _plain
            connection.write(write(number, records))
            await asyncio.sleep(0)
        while listener.confirmed < frames * confirms:
            await listener.more()
        await listener.close()


def _plain(number: int, records: Sequence[bytes]) -> bytes:
    return publish_frame(PUBLISHER, number * len(records), records)


def _packed(number: int, records: Sequence[bytes]) -> bytes:
    parts = []
    for record in records:
        size = len(record).to_bytes(4, "big")
        parts.append((len(record) + 8).to_bytes(4, "big") + _DATA + size + record)
    data, count = b"".join(parts), len(records)
    head = (PUBLISHER, 1, number, _OPEN_BATCH, count, len(data), len(data))
    return _HEADER.pack(_HEADER.size - 4 + len(data), KEY_PUBLISH, 1, *head) + data


@dataclass(frozen=True)
class Reading:
    """Reading with so many chunks under way."""

    credit: int = 3

    async def run(self, site: Site, stream: str, count: int) -> None:
        connection, listener = await _open(site, stream)
        await connection.subscribe_at(stream, 0, StreamEdge.FIRST)
        if self.credit > 1:
            connection.give_credit(0, self.credit - 1)
        while listener.read < count:
            await listener.more()
        await listener.close()
