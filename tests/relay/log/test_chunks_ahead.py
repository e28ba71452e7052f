"""How many chunks of the log the broker may send before they are asked for."""

from __future__ import annotations

import asyncio
from typing import NoReturn

import pytest

from federation.brokers.addresses import StreamAddress
from relay.log.rabbit.rabbit_log import RabbitLog
from relay.log.rabbit.stream_connection import StreamConnection, StreamEdge
from relay.log.rabbit.stream_frames import Chunk
from relay.log.site_log import LogClosed, Record

MIB = 1024 * 1024


class EagerBroker(StreamConnection):
    """Sends a chunk for every credit, whenever `send` is called."""

    def __init__(self, chunk_bytes: int) -> None:
        super().__init__(StreamAddress("127.0.0.1", 0, "/", "nobody", ""), 10, "test")
        self.chunk_bytes = chunk_bytes
        self.credit = 0
        self.sent = 0
        self.log: RabbitLog | None = None

    async def subscribe_at(self, stream: str, number: int, where: int | StreamEdge) -> None:
        self.credit = 1

    def give_credit(self, number: int, chunks: int) -> None:
        self.credit += chunks

    def send(self) -> int:
        """How many chunks."""
        assert self.log is not None
        sent, self.credit = self.credit, 0
        for _ in range(sent):
            records = [Record(self.sent, bytes(self.chunk_bytes))]
            self.log.on_chunk(Chunk(0, self.sent, self.sent + 1, self.chunk_bytes, records))
            self.sent += 1
        return sent


async def open_further() -> NoReturn:
    raise AssertionError("one connection has readers enough for this")


@pytest.mark.parametrize(("chunk_bytes", "most"), [(1000, 8), (MIB, 2), (4 * MIB, 0)])
async def test_many_small_chunks_are_under_way_or_few_big_ones(chunk_bytes: int, most: int) -> None:
    """`most`: behind the one that was just taken."""
    broker = EagerBroker(chunk_bytes)
    log = broker.log = RabbitLog(broker, "log", "mark", open_further)
    cursor = await log.read(0)
    broker.send()
    under_way = []
    for number in range(40):
        wanted = asyncio.ensure_future(cursor.next(8))
        while not wanted.done():
            await asyncio.sleep(0)
            broker.send()
        assert [record.offset for record in await wanted] == [number]
        under_way.append(broker.sent + broker.credit - number - 1)
    assert max(under_way) == most
    log.fail(LogClosed("over"))
