"""A log of which the content of large messages is in a content store."""

from __future__ import annotations

import asyncio
import random

import pytest

from relay.batches.batch import BatchHead, BatchHeader, BatchKind, LoggedBatch
from relay.batches.format import (
    BadBatch,
    UnknownFormat,
    decode_entries,
    read_header,
    verify_digest,
)
from relay.batches.fragments import PIECE_BYTES
from relay.content.contents import MARGIN_S, Contents, StoringRule
from relay.content.memory_content import KeptContent, MemoryContent
from relay.content.reference import ContentReference
from relay.log.run import Appended
from relay.log.site_log import LogClosed
from tests.log_batches import batch, big_message
from tests.log_world import LogWorld, append, take_batches, until_checked
from tests.virtual_time import in_virtual_time, let_pass
from tests.waiting import until

DAY_S = 24 * 3600
BODY = random.Random(1).randbytes(3 * PIECE_BYTES + 5000)
TEXT = b"".join(b"line %d of a catalogue\n" % number for number in range(200_000))


class StoreBench:
    """A log with a content store, both in memory."""

    def __init__(self, above: int = 1024 * 1024) -> None:
        self.now = 0.0
        self.kept = KeptContent(lambda: self.now)
        self.store = MemoryContent(self.kept)
        self.contents = Contents(self.store, lambda: 0.5, StoringRule(above, DAY_S))
        self.world = LogWorld(contents=self.contents)

    @property
    def record_bytes(self) -> list[int]:
        return [len(record.data) for record in self.world.stream.records]


async def append_all(world: LogWorld, batches: list[tuple[BatchHeader, bytes]]) -> None:
    async with world.writer() as writer:
        assert set(await asyncio.gather(*(writer.append(*one) for one in batches))) == {
            Appended.LOGGED
        }


async def all_of(world: LogWorld, count: int) -> list[LoggedBatch]:
    """Batches of the log, read from the stream by another life of the node."""
    async with world.writer() as writer:
        return await take_batches(writer.reader(None, name="all"), count)


@pytest.mark.parametrize("body", [BODY, TEXT], ids=["noise", "text"])
@pytest.mark.parametrize("body_apart", [True, False], ids=["apart", "together"])
@in_virtual_time
async def test_a_big_message_is_a_percent_of_itself_in_the_log_and_read_whole(
    body: bytes, body_apart: bool
) -> None:
    bench = StoreBench()
    pieces = big_message(1, body, body_apart=body_apart)
    small = batch(99)
    await append_all(bench.world, [batch(0), *pieces, small])
    assert sum(bench.record_bytes) < len(body) / 100
    read = await all_of(bench.world, len(pieces) + 2)
    assert [one.data for one in read] == [batch(0)[1], *(data for _, data in pieces), small[1]]
    assert b"".join(decode_entries(one.data)[0].body for one in read[1:-1]) == body
    for one in read:
        verify_digest(one.data)


@in_virtual_time
async def test_smaller_messages_and_sites_without_a_rule_log_the_same_bytes_as_before() -> None:
    pieces = big_message(0, BODY, body_apart=False)
    small = big_message(9, BODY[: PIECE_BYTES - 1], body_apart=False)
    bench, without = StoreBench(), StoreBench()
    without.contents.rule = None
    await append_all(bench.world, small)
    await append_all(without.world, pieces)
    assert [r.data for r in bench.world.stream.records] == [data for _, data in small]
    assert [r.data for r in without.world.stream.records] == [data for _, data in pieces]
    assert not bench.kept.writes
    assert not without.kept.writes


@in_virtual_time
async def test_a_body_in_three_exchanges_is_stored_once() -> None:
    for body in (BODY, TEXT):
        bench = StoreBench()
        for number, exchange in enumerate(("orders", "prices", "stock")):
            pieces = big_message(0, body, exchange=exchange, identity=bytes([number]) * 16)
            await append_all(bench.world, pieces)
        assert bench.kept.writes == sum(map(len, bench.kept.chunks.values()))
        assert bench.contents.counts.stored == len(pieces)
        assert bench.contents.counts.shared == 2 * bench.contents.counts.stored
        assert len(await all_of(bench.world, 3 * len(pieces))) == 3 * len(pieces)


@in_virtual_time
async def test_a_message_that_is_repaired_is_stored_too_and_equal_bytes_once() -> None:
    bench = StoreBench()
    await append_all(bench.world, big_message(0, BODY))
    repaired = big_message(9, BODY, kind=BatchKind.REPAIR)
    await append_all(bench.world, repaired)
    assert bench.contents.counts.shared == bench.contents.counts.stored
    assert sum(bench.record_bytes[len(repaired) :]) < len(BODY) / 50
    read = await all_of(bench.world, 2 * len(repaired))
    assert [one.data for one in read[len(repaired) :]] == [data for _, data in repaired]


@in_virtual_time
async def test_a_content_put_again_late_outlives_the_log() -> None:
    bench = StoreBench()
    await append_all(bench.world, big_message(0, BODY))
    bench.now += MARGIN_S * 0.6
    await append_all(bench.world, big_message(0, BODY, exchange="prices"))
    assert bench.contents.counts.shared == 0
    bench.now += DAY_S + MARGIN_S / 2
    late = (await all_of(bench.world, 8))[4:]
    assert not any(isinstance(one.data, BatchHead) for one in late)


@in_virtual_time
async def test_a_node_without_the_store_refuses_the_record_and_says_why() -> None:
    bench = StoreBench()
    await append_all(bench.world, [batch(0), *big_message(1, BODY)])
    record = bench.world.stream.records[1]
    with pytest.raises(UnknownFormat, match="batch format 128"):
        read_header(record.data)
    older = LogWorld(stream=bench.world.stream)
    writer = older.make_writer()
    living = asyncio.ensure_future(writer.run_forever())
    await until(lambda: older.unknown, "the record is refused", 60)
    assert "batch format 128" in str(older.unknown[0])
    assert not older.bad_records
    await writer.close()
    await living


@in_virtual_time
async def test_an_append_waits_while_the_store_is_away_and_what_follows_waits_behind() -> None:
    bench = StoreBench()
    async with bench.world.writer() as writer:
        bench.store.away = True
        pieces = [writer.append_nowait(*one) for one in big_message(0, BODY)]
        small = writer.append_nowait(*batch(50))
        await let_pass(60)
        assert not any(one.done() for one in (*pieces, small))
        assert bench.contents.reason == "writing content: no quorum in memory"
        bench.store.away = False
        bench.store.lost_answers = 3
        assert await asyncio.gather(*pieces, small) == [Appended.LOGGED] * 5
        assert bench.contents.reason == ""
        assert bench.world.stored == [0, 1, 2, 3, 50]


@in_virtual_time
async def test_what_waits_for_the_store_fails_with_the_logs_connection() -> None:
    bench = StoreBench()
    async with bench.world.writer() as writer:
        bench.store.away = True
        waiting = [writer.append_nowait(*one) for one in (*big_message(0, BODY), batch(50))]
        await let_pass(1)
        bench.world.stream.break_connections()
        for one in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(one, LogClosed)
        bench.store.away = False
        await writer.running()
        assert await append(writer, 50) == [Appended.LOGGED]
        assert bench.world.stored == [50]
        assert bench.contents.reason == ""


@in_virtual_time
async def test_a_reader_waits_while_the_store_is_away_and_can_be_closed_meanwhile() -> None:
    bench = StoreBench()
    await append_all(bench.world, big_message(0, BODY))
    bench.store.away = True
    async with bench.world.writer() as writer:
        reader, closed = (writer.reader(None, name=name) for name in ("one", "other"))
        reading = asyncio.ensure_future(take_batches(reader, 4))
        ending = asyncio.ensure_future(take_batches(closed, 4))
        await let_pass(30)
        assert bench.contents.reason == "reading content: no quorum in memory"
        await closed.close()
        with pytest.raises(LogClosed):
            await ending
        bench.world.stream.break_connections()
        await writer.running()
        bench.store.away = False
        assert [one.header.name.sequence for one in await reading] == [0, 1, 2, 3]


@in_virtual_time
async def test_repair_recovery_and_packer_read_whole_batches_to_the_end() -> None:
    bench = StoreBench()
    pieces = big_message(1, BODY)
    await append_all(bench.world, [batch(0), *pieces, batch(9)])
    async with bench.world.writer() as writer:
        read = [one async for batches in writer.read_to_end(0) for one in batches]
    assert [one.data for one in read] == [batch(0)[1], *(data for _, data in pieces), batch(9)[1]]


@in_virtual_time
async def test_the_check_of_a_log_takes_nothing_from_the_store() -> None:
    bench = StoreBench()
    pieces = big_message(0, BODY)
    await append_all(bench.world, pieces)
    bench.store.away = True
    async with bench.world.writer() as writer:
        await append(writer, 9)
        await until_checked(writer, 9)
        assert {header.name for header, _ in pieces} <= {
            seen.name for seen in writer.names_lately()
        }
    assert bench.contents.counts.taken == 0


@in_virtual_time
async def test_a_content_that_is_gone_leaves_the_head_of_its_batch() -> None:
    bench = StoreBench()
    pieces = big_message(0, BODY)
    await append_all(bench.world, [*pieces, batch(9)])
    gone = ContentReference.decode(bench.world.stream.records[1].data)
    damaged = ContentReference.decode(bench.world.stream.records[2].data)
    assert gone is not None
    assert damaged is not None
    del bench.kept.chunks[gone.content_id][1]
    bench.kept.write(damaged.content_id, 0, bytes(512 * 1024), 3600)
    read = await all_of(bench.world, 5)
    assert [one.header.name.sequence for one in read] == [0, 1, 2, 3, 9]
    heads = [one.data for one in read if isinstance(one.data, BatchHead)]
    assert [head.reason for head in heads] == [
        f"chunk 1 of content {gone.content_id.hex()} is gone",
        f"content {damaged.content_id.hex()} is damaged: its digest does not match",
    ]
    for head in heads:
        with pytest.raises(BadBatch, match="content"):
            decode_entries(head)
