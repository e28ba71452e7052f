"""What every log promises, over both twins: the stream of a real broker, and the one in memory."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

import pytest

from federation.brokers.addresses import StreamAddress
from relay.content.content_log import ContentLog
from relay.content.contents import Contents, StoringRule
from relay.content.memory_content import KeptContent, MemoryContent
from relay.log.memory_log import MemoryStream
from relay.log.rabbit.rabbit_log import open_rabbit_log
from relay.log.scans.scan_cursor import ScanCursor
from relay.log.scans.shared_scan import LogScans
from relay.log.site_log import (
    LogClosed,
    LogCursor,
    LogMissing,
    LogRefused,
    Record,
    SiteLog,
    SiteLogError,
)
from tests.live_brokers import Vhost
from tests.log_batches import batch, sequences

STREAM = "log"


@dataclass
class Bench:
    """One empty log, and what a test does to it from outside."""

    open: Callable[[], Awaitable[SiteLog]]
    delete: Callable[[], Awaitable[None]]
    create: Callable[[], Awaitable[None]]


@pytest.fixture
async def memory_bench() -> Bench:
    stream = MemoryStream()

    async def delete() -> None:
        stream.delete()

    async def create() -> None:
        stream.create()

    return Bench(stream.open, delete, create)


@pytest.fixture
async def content_bench(memory_bench: Bench) -> Bench:
    """The log in memory, behind a content store that has nothing to do."""
    contents = Contents(MemoryContent(KeptContent(time.monotonic)), random.random)
    contents.rule = StoringRule(above=1, retention_s=1.0)

    async def connect() -> SiteLog:
        return ContentLog(await memory_bench.open(), contents)

    return replace(memory_bench, open=connect)


@pytest.fixture
async def rabbit_bench(vhost: Vhost) -> AsyncIterator[Bench]:
    address = StreamAddress(vhost.host, vhost.stream_port, vhost.name, vhost.user, vhost.password)
    opened: list[SiteLog] = []

    async def create() -> None:
        body = {"durable": True, "arguments": {"x-queue-type": "stream"}}
        await vhost.api("PUT", f"/queues/{{vhost}}/{STREAM}", body)

    async def delete() -> None:
        await vhost.api("DELETE", f"/queues/{{vhost}}/{STREAM}")

    async def connect() -> SiteLog:
        opened.append(await open_rabbit_log(address, STREAM, mark_name="deliverer"))
        return opened[-1]

    await create()
    yield Bench(connect, delete, create)
    for log in opened:
        await log.close()


@pytest.fixture(
    params=[
        *("memory_bench", "content_bench"),
        pytest.param("rabbit_bench", marks=pytest.mark.live),
    ],
    ids=["memory", "content", "rabbit"],
)
def bench(request: pytest.FixtureRequest) -> Bench:
    made: Bench = request.getfixturevalue(request.param)
    return made


async def read_until(cursor: LogCursor, last: bytes) -> list[Record]:
    """Everything up to the record `last`."""
    got: list[Record] = []
    while not got or got[-1].data != last:
        got += await asyncio.wait_for(cursor.next(), 10)
    return got


async def test_records_come_back_whole_and_in_order(bench: Bench) -> None:
    log = await bench.open()
    sent = [b"", b"\x00", b"x" * 300, bytes(range(256)) * 2000]
    await log.append(sent[:2])
    await log.append(sent[2:])
    got = await read_until(await log.read(0), sent[-1])
    assert [r.data for r in got] == sent
    assert [r.flaw for r in got] == [""] * 4
    assert [r.offset for r in got] == sorted({r.offset for r in got})


async def test_a_log_tells_where_it_begins_and_ends(bench: Bench) -> None:
    log = await bench.open()
    assert await log.first() is None
    assert await log.end() is None
    await log.append([b"a", b"b", b"c"])
    got = await read_until(await log.read(0), b"c")
    assert await log.first() == got[0].offset
    assert await log.end() == got[-1].offset


async def test_appends_are_written_and_answered_in_the_order_of_the_calls(bench: Bench) -> None:
    log = await bench.open()
    answered: list[int] = []
    all_done = asyncio.Event()

    def answer(number: int) -> Callable[[SiteLogError | None], None]:
        def done(error: SiteLogError | None) -> None:
            assert error is None
            answered.append(number)
            if len(answered) == 500:
                all_done.set()

        return done

    for number in range(500):
        log.submit([b"%d" % number] * (1 + number % 3), answer(number))
        assert answered == []  # never from inside the call
    await asyncio.wait_for(all_done.wait(), 10)
    assert answered == list(range(500))
    got = await read_until(await log.read(0), b"499")
    assert list(dict.fromkeys(r.data for r in got)) == [b"%d" % n for n in range(500)]


async def test_more_than_may_be_in_flight_waits_its_turn(bench: Bench) -> None:
    log = await bench.open()
    large = bytes(900_000)
    await asyncio.gather(*(log.append([large, large, b"%d" % n]) for n in range(12)))
    cursor = await log.read(0)
    got = await read_until(cursor, b"11")
    assert len(got) == 36
    assert [r.data for r in got[2::3]] == [b"%d" % n for n in range(12)]


async def test_a_record_that_is_too_large_is_refused_and_nothing_of_its_call_appended(
    bench: Bench,
) -> None:
    log = await bench.open()
    with pytest.raises(LogRefused, match="bytes"):
        await log.append([b"small", bytes(log.max_record_bytes + 1)])
    await log.append([bytes(log.max_record_bytes)])
    await log.append([b"next"])
    got = await read_until(await log.read(0), b"next")
    assert [len(r.data) for r in got] == [log.max_record_bytes, 4]


async def test_a_reader_begins_where_it_is_told(bench: Bench) -> None:
    log = await bench.open()
    await log.append([b"a", b"b", b"c"])
    await log.append([b"d"])
    offsets = {r.data: r.offset for r in await read_until(await log.read(0), b"d")}
    for start in (b"a", b"b", b"c", b"d"):
        got = await read_until(await log.read(offsets[start]), b"d")
        assert got[0] == Record(offsets[start], start)


async def test_a_start_past_the_end_does_not_move_there_silently(bench: Bench) -> None:
    log = await bench.open()
    await log.append([b"a", b"b"])
    end = await log.end()
    assert end is not None
    for start in (end + 1, end + 1000):
        cursor = await log.read(start)
        got = await asyncio.wait_for(cursor.next(), 10)
        assert got[-1] == Record(end, b"b")


async def test_a_start_past_the_end_of_an_empty_log_sees_its_first_record(bench: Bench) -> None:
    log = await bench.open()
    cursor = await log.read(77)
    await log.append([b"a"])
    assert [r.data for r in await asyncio.wait_for(cursor.next(), 10)] == [b"a"]


async def test_a_reader_at_the_end_waits_for_what_comes(bench: Bench) -> None:
    log = await bench.open()
    await log.append([b"a"])
    cursor = await log.read(0)
    await read_until(cursor, b"a")
    waiting = asyncio.ensure_future(cursor.next())
    await log.append([b"b"])
    assert [r.data for r in await asyncio.wait_for(waiting, 10)] == [b"b"]


async def test_a_cancelled_reader_loses_nothing(bench: Bench) -> None:
    log = await bench.open()
    cursor = await log.read(0)
    for n in range(30):
        waiting = asyncio.ensure_future(cursor.next())
        await asyncio.sleep(0)
        appending = asyncio.ensure_future(log.append([b"%d" % n]))
        for _ in range(n % 7):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        await appending
        if waiting.cancelled():
            assert [r.data for r in await asyncio.wait_for(cursor.next(), 10)] == [b"%d" % n]
        else:
            assert [r.data for r in waiting.result()] == [b"%d" % n]


async def test_readers_go_their_own_ways(bench: Bench) -> None:
    log = await bench.open()
    for n in range(20):
        await log.append([b"%d" % n])
    slow, fast = await log.read(0), await log.read(0)
    first = await asyncio.wait_for(slow.next(), 10)
    assert len(await read_until(fast, b"19")) == 20
    await fast.close()
    assert first + await read_until(slow, b"19") == await read_until(await log.read(0), b"19")


async def test_reading_ahead_gives_the_same(bench: Bench) -> None:
    log = await bench.open()
    for n in range(60):
        await log.append([b"%d" % n])
    cursor = await log.read(0)
    got: list[Record] = []
    while len(got) < 60:
        got += await asyncio.wait_for(cursor.next(ahead=8), 10)
    assert [r.data for r in got] == [b"%d" % n for n in range(60)]


async def test_a_reader_in_a_hurry_is_held_up_by_no_reader_that_waits_at_the_end(
    bench: Bench,
) -> None:
    log = await bench.open()
    for number in range(40):
        await log.append([b"%d" % number])  # a chunk each
    waiting = [await log.read(39) for _ in range(3)]
    for cursor in waiting:
        assert [record.data for record in await cursor.next(8)] == [b"39"]
    tasks = [asyncio.ensure_future(cursor.next(8)) for cursor in waiting]
    hurried = await log.read(0, hurried=True)
    seen: list[bytes] = []
    while len(seen) < 40:
        seen += [record.data for record in await hurried.next(32)]
    assert seen == [b"%d" % number for number in range(40)]
    await hurried.close()
    await log.append([b"news"])
    assert [[record.data for record in await task] for task in tasks] == [[b"news"]] * 3
    await log.close()


async def test_many_readers_one_after_the_other(bench: Bench) -> None:
    log = await bench.open()
    await log.append([b"a"])
    for _ in range(300):
        cursor = await log.read(0)
        assert len(await asyncio.wait_for(cursor.next(ahead=4), 10)) == 1
        await cursor.close()
        await cursor.close()


async def test_hundreds_of_readers_at_once(bench: Bench) -> None:
    log = await bench.open()
    await log.append([b"a"])
    cursors = await asyncio.gather(*(log.read(0) for _ in range(500)))
    ends = await asyncio.gather(*(log.end() for _ in range(300)))
    assert set(ends) == {await log.first()}
    for records in await asyncio.gather(*(cursor.next() for cursor in cursors)):
        assert [record.data for record in records] == [b"a"]
    await log.append([b"b"])
    for records in await asyncio.gather(*(cursor.next() for cursor in cursors)):
        assert [record.data for record in records] == [b"b"]
    waiting = [asyncio.create_task(cursor.next()) for cursor in cursors]
    await log.close()
    for told in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(told, LogClosed)


async def test_two_connections_write_side_by_side(bench: Bench) -> None:
    one, other = await bench.open(), await bench.open()
    await asyncio.gather(
        *(one.append([b"1"]) for _ in range(50)), *(other.append([b"2"]) for _ in range(50))
    )
    await one.append([b"end"])
    got = await read_until(await other.read(0), b"end")
    assert sorted(r.data for r in got[:-1]) == [b"1"] * 50 + [b"2"] * 50


async def test_the_mark_is_none_until_stored_and_then_the_last_stored(bench: Bench) -> None:
    log = await bench.open()
    assert await log.load_mark() is None
    await log.append([b"a"])
    await log.store_mark(5)
    assert await log.load_mark() == 5
    await log.store_mark(9)
    await log.close()
    assert await (await bench.open()).load_mark() == 9


async def test_a_stored_mark_disturbs_no_reader(bench: Bench) -> None:
    log = await bench.open()
    cursor = await log.read(0)
    await log.append([b"a"])
    await log.store_mark(0)
    await log.append([b"b"])
    assert [r.data for r in await read_until(cursor, b"b")] == [b"a", b"b"]


async def test_closing_ends_what_is_in_flight_and_everything_after(bench: Bench) -> None:
    log = await bench.open()
    cursor = await log.read(0)
    reading = asyncio.ensure_future(cursor.next())
    await asyncio.sleep(0)
    await log.close()
    await log.close()
    assert log.closed.done()
    with pytest.raises(LogClosed):
        await asyncio.wait_for(reading, 10)
    for again in (
        log.append([b"x"]),
        log.read(0),
        log.end(),
        log.first(),
        log.load_mark(),
        log.store_mark(1),
    ):
        with pytest.raises(LogClosed):
            await again


async def test_a_log_that_was_never_made_is_missing(bench: Bench) -> None:
    await bench.delete()
    with pytest.raises(LogMissing):
        await bench.open()


async def test_a_log_deleted_under_its_writer_and_readers_is_missing(bench: Bench) -> None:
    log = await bench.open()
    await log.append([b"a"])
    cursor = await log.read(0)
    await read_until(cursor, b"a")
    reading = asyncio.ensure_future(cursor.next())
    await asyncio.sleep(0)
    await bench.delete()
    with pytest.raises(LogMissing):
        await asyncio.wait_for(reading, 10)
    assert log.closed.done()
    with pytest.raises(LogMissing):
        await log.append([b"b"])
    with pytest.raises(LogMissing):
        await bench.open()
    await bench.create()
    assert await (await bench.open()).end() is None


async def test_appends_racing_with_a_deletion_all_end(bench: Bench) -> None:
    log = await bench.open()
    appends = [asyncio.ensure_future(log.append([bytes(1000)])) for _ in range(200)]
    await asyncio.sleep(0)
    await bench.delete()
    done, pending = await asyncio.wait(appends, timeout=15)
    assert not pending
    errors = [a.exception() for a in done if a.exception() is not None]
    assert all(isinstance(e, LogMissing) for e in errors)


async def take_until(cursor: ScanCursor, last: int) -> list[int]:
    """The sequences of what comes, up to `last`."""
    got: list[int] = []
    while not got or got[-1] < last:
        await asyncio.wait_for(cursor.more(), 20)
        got += sequences(cursor.take(100_000))
    return got


async def test_hundreds_of_readers_share_what_is_read(bench: Bench) -> None:
    log = await bench.open()
    for first in range(0, 1000, 50):
        await log.append([batch(number)[1] for number in range(first, first + 50)])
    offset = await log.first()
    assert offset is not None
    scans = LogScans(log, 1)
    cursors = [scans.cursor(offset + begin) for begin in range(300)]
    for begin, got in enumerate(await asyncio.gather(*(take_until(c, 999) for c in cursors))):
        assert got == list(range(begin, 1000))
    assert scans.scan_count == 1
    waiting = [asyncio.ensure_future(take_until(cursor, 1000)) for cursor in cursors]
    await log.append([batch(1000)[1]])
    assert await asyncio.gather(*waiting) == [[1000]] * 300


async def test_a_shared_reading_taken_up_again_at_the_logs_end_gives_nothing_twice(
    bench: Bench,
) -> None:
    log = await bench.open()
    await log.append([batch(number)[1] for number in range(10)])
    offset = await log.first()
    assert offset is not None
    scans = LogScans(log, 1)
    for last in (10, 11):
        cursor = scans.cursor(offset)
        assert await take_until(cursor, last - 1) == list(range(last))
        cursor.leave()  # the last one: reading ends, what was read is kept
        again = scans.cursor(offset + 5)
        taken = asyncio.ensure_future(take_until(again, last))
        assert await asyncio.wait_for(log.end(), 10) == offset + last - 1
        await log.append([batch(last)[1]])
        assert await taken == list(range(5, last + 1))
        again.leave()
