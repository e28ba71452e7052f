"""Readers that are behind share one reading: who joins whom, who falls out, what is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import AsyncMock, patch

import pytest

from relay.log.memory_log import MemoryLog, MemoryStream
from relay.log.scan_cursor import ScanCursor
from relay.log.shared_scan import LINGER_S, LogScans
from relay.log.site_log import LogClosed, LogMissing, LogRefused
from relay.log.writer import LogWriter
from tests.log_batches import batch, sequences
from tests.log_world import (
    LogWorld,
    append,
    append_and_check,
    ending_run,
    in_one_life,
    positions_of_a_life_before,
    take,
)
from tests.virtual_time import in_virtual_time, let_pass
from tests.waiting import until

FORMAT = 1
SMALL = len(batch(0)[1])


@contextmanager
def watched_reads() -> Iterator[AsyncMock]:
    """Every cursor that is opened on a log in memory."""
    with patch.object(MemoryLog, "read", autospec=True, side_effect=MemoryLog.read) as read:
        yield read


def stream_of(count: int, *, chunk: int = 10, body: bytes = b"body") -> MemoryStream:
    """A log of so many batches, of which each is at the offset of its number."""
    stream = MemoryStream()
    for first in range(0, count, chunk):
        numbers = range(first, min(first + chunk, count))
        stream.append_alien(*(batch(number, body=body)[1] for number in numbers))
    return stream


async def scans_of(stream: MemoryStream, kept_bytes: int = 1 << 20) -> LogScans:
    return LogScans(await stream.open(), FORMAT, kept_bytes)


async def take_from(cursor: ScanCursor, count: int, max_bytes: int = 10 * SMALL) -> list[int]:
    """The sequences of the next batches, at least so many."""
    got: list[int] = []
    while len(got) < count:
        await cursor.more()
        got += sequences(cursor.take(max_bytes))
    return got


# Who joins whom


@in_virtual_time
async def test_readers_from_one_place_cost_one_cursor() -> None:
    scans = await scans_of(stream_of(500))
    with watched_reads() as read:
        cursors = [scans.cursor(100) for _ in range(20)]
        for got in await asyncio.gather(*(take_from(cursor, 400) for cursor in cursors)):
            assert got == list(range(100, 500))
    read.assert_awaited_once()


@in_virtual_time
async def test_a_batch_is_parsed_once_for_all() -> None:
    scans = await scans_of(stream_of(10))
    one, other = scans.cursor(0), scans.cursor(3)
    await one.more()
    await other.more()
    assert one.take(10_000)[3] is other.take(10_000)[0]


@in_virtual_time
async def test_readers_from_neighbouring_places_cost_one_cursor() -> None:
    scans = await scans_of(stream_of(2000), kept_bytes=4 << 20)
    places = (450, 900, 17, 0)
    with watched_reads() as read:
        cursors = [scans.cursor(place) for place in places]
        results = await asyncio.gather(*(take_from(c, 2000 - c.offset) for c in cursors))
    assert results == [list(range(first, 2000)) for first in places]
    assert [call.args[1] for call in read.await_args_list] == [0]


@in_virtual_time
async def test_a_reader_far_ahead_waits_for_nobody() -> None:
    scans = await scans_of(stream_of(5000))
    with watched_reads() as read, patch("relay.log.shared_scan._NEAR", 1000):
        behind, ahead = scans.cursor(0), scans.cursor(4000)
        assert (await take_from(ahead, 10))[0] == 4000
        assert (await take_from(behind, 10))[0] == 0
    assert [call.args[1] for call in read.await_args_list] == [4000, 0]


@in_virtual_time
async def test_a_reader_leaves_a_scan_that_does_not_come_by() -> None:
    scans = await scans_of(stream_of(5000))
    with watched_reads() as read, patch("relay.log.scan_cursor._PATIENCE_BYTES", 1_000_000):
        behind, ahead = scans.cursor(0), scans.cursor(4000)
        assert (await take_from(ahead, 10))[0] == 4000
        assert (await take_from(behind, 10))[0] == 0
    assert 4000 in [call.args[1] for call in read.await_args_list]


@in_virtual_time
async def test_one_that_joins_late_finds_what_is_kept() -> None:
    scans = await scans_of(stream_of(500))
    first = scans.cursor(0)
    with watched_reads() as read:
        await take_from(first, 500)
        late = scans.cursor(30)
        assert await take_from(late, 470) == list(range(30, 500))
    read.assert_awaited_once()


@in_virtual_time
async def test_a_scan_ends_where_another_ones_begins() -> None:
    stream = stream_of(6000)
    scans = await scans_of(stream, kept_bytes=4 << 20)
    with watched_reads() as read:
        ahead = scans.cursor(3000)
        await take_from(ahead, 1000)
        behind = scans.cursor(0)
        assert await take_from(behind, 6000) == list(range(6000))
        assert scans.scan_count == 2  # one of them has no readers any more
        await take_from(ahead, 2000)
        stream.append_alien(batch(6000)[1])
        assert await take_from(behind, 1) == [6000]
        assert await take_from(ahead, 1) == [6000]
    assert [call.args[1] for call in read.await_args_list] == [3000, 0]


@in_virtual_time
async def test_two_that_wait_at_the_logs_end_come_to_have_one_cursor() -> None:
    stream = stream_of(3000)
    log = await stream.open()
    scans = LogScans(log, FORMAT, 100_000)
    behind, ahead = scans.cursor(0), scans.cursor(1500)
    await take_from(ahead, 1500)
    await take_from(behind, 3000)  # by itself: what the other one's scan kept is forgotten
    for number in (3000, 3001):
        waiting = [asyncio.ensure_future(take_from(cursor, 1)) for cursor in (behind, ahead)]
        await let_pass(1)
        stream.append_alien(batch(number)[1])
        assert [await each for each in waiting] == [[number], [number]]
    await let_pass(1)
    assert len(log._cursors) == 1


# Who falls out, and what is kept


@in_virtual_time
async def test_a_slow_reader_falls_out_and_gets_everything_in_order() -> None:
    scans = await scans_of(stream_of(5000), kept_bytes=300_000)
    slow, fast = scans.cursor(0), scans.cursor(0)
    got = await take_from(slow, 10)
    with watched_reads() as read:
        assert len(await take_from(fast, 5000)) == 5000
        assert await take_from(slow, 5000 - len(got)) == list(range(len(got), 5000))
    read.assert_awaited_once()  # the slow one's own; the first was there before


@in_virtual_time
async def test_a_slow_reader_that_fell_out_learns_what_retention_ate_meanwhile() -> None:
    stream = stream_of(5000)
    scans = await scans_of(stream, kept_bytes=300_000)
    slow, fast = scans.cursor(0), scans.cursor(0)
    await take_from(slow, 10)
    await take_from(fast, 5000)
    stream.truncate_head(600)
    await slow.more()
    assert (slow.offset, slow.eaten_to) == (10, 600)
    assert slow.take(10_000) == []
    assert slow.skip_past(batch(600)[0].name) == (False, 0)
    slow.pass_eaten()
    assert await take_from(slow, 4400) == list(range(600, 5000))
    assert fast.eaten_to is None


@in_virtual_time
async def test_a_reader_that_rests_learns_what_retention_ate_before_it() -> None:
    stream = stream_of(5000)
    scans = await scans_of(stream, kept_bytes=300_000)
    cursor = scans.cursor(0)
    got = await take_from(cursor, 10)
    await let_pass(1)
    stream.truncate_head(3000)
    while cursor.eaten_to is None:
        got += sequences(cursor.take(10_000))
        await cursor.more()
    assert got == list(range(cursor.offset))
    assert cursor.eaten_to == 3000


@in_virtual_time
async def test_a_hole_that_retention_did_not_make_is_nothing_eaten() -> None:
    stream = stream_of(100)
    stream.skip_offsets(50)
    stream.append_alien(*(batch(number)[1] for number in range(100, 110)))
    scans = await scans_of(stream)
    stream.truncate_head(40)
    for start in (40, 120):
        cursor = scans.cursor(start)
        assert (await take_from(cursor, 10))[-1] == (109 if start == 120 else 49)
        assert cursor.eaten_to is None


@in_virtual_time
async def test_what_is_kept_is_bounded_however_many_places_there_are() -> None:
    chunk, most = 10, 500_000
    scans = await scans_of(stream_of(4000, chunk=chunk, body=b"x" * 2000), most)
    places = range(0, 3000, 150)
    with patch("relay.log.shared_scan._NEAR", 0):
        cursors = [scans.cursor(place) for place in places]
    highest = 0

    async def read(cursor: ScanCursor, first: int) -> None:
        nonlocal highest
        number = first
        while number < 4000:
            await cursor.more()
            for given in cursor.take(3000):
                assert given.place.name.sequence == number
                number += 1
            highest = max(highest, scans.kept_bytes)
            await asyncio.sleep(0)

    await asyncio.gather(*(read(c, first) for c, first in zip(cursors, places, strict=True)))
    a_chunk = chunk * (len(batch(0, body=b"x" * 2000)[1]) + 1024)
    assert most < highest <= most + len(places) * a_chunk


@in_virtual_time
async def test_a_scan_reads_ahead_of_its_foremost_reader_a_little() -> None:
    scans = await scans_of(stream_of(5000), kept_bytes=10 << 20)
    cursor = scans.cursor(0)
    await cursor.more()
    await let_pass(1)
    assert 1 << 20 <= scans.kept_bytes < 1.1 * (1 << 20)


@in_virtual_time
async def test_what_nobody_reads_any_more_is_kept_for_a_while() -> None:
    stream = stream_of(100)
    log = await stream.open()
    scans = LogScans(log, FORMAT)
    with watched_reads() as read:
        gone = scans.cursor(0)
        await take_from(gone, 100)
        gone.leave()
        await let_pass(LINGER_S - 1)
        assert not log._cursors  # the broker keeps nothing up for it
        back = scans.cursor(0)
        await take_from(back, 100)
        back.leave()
        assert read.await_count == 1
        await let_pass(LINGER_S - 1)
        assert scans.kept_bytes
        await let_pass(2)
    assert (scans.kept_bytes, scans.scan_count) == (0, 0)


@in_virtual_time
async def test_a_scan_that_is_read_on_at_the_logs_end_gives_nothing_twice() -> None:
    stream = stream_of(100)
    scans = await scans_of(stream)
    gone = scans.cursor(0)
    await take_from(gone, 100)
    gone.leave()
    back = scans.cursor(90)
    assert await take_from(back, 10) == list(range(90, 100))
    waiting = asyncio.ensure_future(take_from(back, 1))
    await let_pass(1)
    assert not waiting.done()
    stream.append_alien(batch(100)[1])
    assert await waiting == [100]


@in_virtual_time
async def test_one_that_comes_back_goes_on_where_the_scan_has_come_to() -> None:
    stream = stream_of(100)
    scans = await scans_of(stream)
    gone = scans.cursor(0)
    await take_from(gone, 100)
    gone.leave()
    back = scans.cursor(90)
    stream.append_alien(batch(100)[1])
    with watched_reads() as read:
        assert await take_from(back, 11) == list(range(90, 101))
    assert [call.args[1] for call in read.await_args_list] == [100]


# Ends


async def two_that_wait(stream: MemoryStream) -> list[tuple[ScanCursor, asyncio.Task[list[int]]]]:
    """Two cursors of one scan at the end of an empty log, and what each will take next."""
    scans = await scans_of(stream)
    cursors = [scans.cursor(0), scans.cursor(0)]
    waiting = [(one, asyncio.ensure_future(take_from(one, 1))) for one in cursors]
    await let_pass(1)
    return waiting


@in_virtual_time
async def test_cancelling_one_harms_nobody_and_loses_nothing() -> None:
    stream = MemoryStream()
    (one, cancelled), (_, waiting) = await two_that_wait(stream)
    cancelled.cancel()
    await let_pass(1)
    stream.append_alien(batch(0)[1])
    assert await waiting == [0]
    assert await take_from(one, 1) == [0]


@in_virtual_time
async def test_one_that_leaves_is_woken_and_harms_nobody() -> None:
    stream = MemoryStream()
    (one, leaving), (_, waiting) = await two_that_wait(stream)
    one.leave()
    one.leave()
    with pytest.raises(LogClosed):
        await leaving
    with pytest.raises(LogClosed):
        await one.more()
    stream.append_alien(batch(0)[1])
    assert await waiting == [0]


@in_virtual_time
async def test_a_connection_that_ends_ends_for_all() -> None:
    stream = stream_of(100)
    for end, error in ((stream.break_connections, LogClosed), (stream.delete, LogMissing)):
        scans = await scans_of(stream)
        cursors = [scans.cursor(0) for _ in range(3)]
        for cursor in cursors[1:]:
            await take_from(cursor, 100)
        waiting = [asyncio.ensure_future(take_from(cursor, 1)) for cursor in cursors[1:]]
        await let_pass(1)
        end()
        for each in waiting:
            with pytest.raises(error):
                await each
        with pytest.raises(error):  # what is kept may not be in the log any more
            await cursors[0].more()
        await scans.close()
        assert scans.kept_bytes == 0


@in_virtual_time
async def test_a_refusal_is_told_to_all_of_a_scan_and_the_next_asks_again() -> None:
    scans = await scans_of(stream_of(10))
    with patch.object(MemoryLog, "read", side_effect=LogRefused("no right to read")):
        for outcome in await asyncio.gather(
            *(scans.cursor(0).more() for _ in range(3)), return_exceptions=True
        ):
            assert isinstance(outcome, LogRefused)
    assert await take_from(scans.cursor(0), 10) == list(range(10))


@in_virtual_time
async def test_a_place_behind_the_logs_end_shows_where_it_ends() -> None:
    scans = await scans_of(stream_of(25))
    cursor = scans.cursor(70)
    assert await take_from(cursor, 5) == [20, 21, 22, 23, 24]
    assert cursor.offset == 25


# What is no batch


@in_virtual_time
async def test_garbage_and_holes_are_passed_over_and_seen_to_be_passed() -> None:
    stream = stream_of(10)
    stream.append_alien(b"no batch")
    stream.append_alien(b"damaged", flaw="checksum")
    stream.skip_offsets(5)
    scans = await scans_of(stream)
    cursor = scans.cursor(0)
    await take_from(cursor, 10)
    while cursor.offset < 12:
        await cursor.more()
        assert cursor.take(1000) == []
    stream.append_alien(batch(17)[1])
    assert await take_from(cursor, 1) == [17]
    assert cursor.offset == 18


@in_virtual_time
async def test_nobody_goes_past_a_batch_of_an_unknown_format() -> None:
    stream = stream_of(10)
    stream.append_alien(batch(10, format=2)[1], batch(11)[1])
    scans = await scans_of(stream)
    before, at, behind = scans.cursor(0), scans.cursor(10), scans.cursor(11)
    assert await take_from(before, 10) == list(range(10))
    for cursor in (before, at):
        await cursor.more()
        assert cursor.take(1000) == []
        assert cursor.stands
    assert await take_from(behind, 1) == [11]


@in_virtual_time
async def test_a_name_is_found_among_copies_only_from_the_place_on() -> None:
    stream = MemoryStream()
    for numbers in ((0, 1, 2), (3, 1, 4), (5, 1)):
        stream.append_alien(*(batch(number)[1] for number in numbers))
    scans = await scans_of(stream)
    whole, later = scans.cursor(0), scans.cursor(2)
    await take_from(scans.cursor(0), 8)
    for cursor, skipped, then in ((whole, 1, 2), (later, 2, 4)):
        await cursor.more()
        assert cursor.skip_past(batch(1)[0].name) == (True, skipped)
        assert sequences(cursor.take(1)) == [then]
    assert whole.skip_past(batch(0)[0].name) == (False, 5)


# With a writer


@in_one_life(hot_bytes=1)
async def test_all_readers_that_are_behind_open_one_cursor(
    world: LogWorld, writer: LogWriter
) -> None:
    await append_and_check(writer, *range(100))
    begin = writer.checked
    await append(writer, *range(100, 200))
    readers = [writer.reader(begin, name=f"link {n}") for n in range(50)]
    with watched_reads() as read:
        for got in await asyncio.gather(*(take(reader, 99) for reader in readers)):
            assert got == list(range(100, 199))
    read.assert_awaited_once()


@in_virtual_time
async def test_readers_from_their_own_places_share_after_a_restart() -> None:
    world = LogWorld()
    stored = await positions_of_a_life_before(world, 300)
    async with world.writer() as writer:
        with watched_reads() as read:
            readers = [writer.reader(place, name="link") for place in stored[:250]]
            for first, got in enumerate(await asyncio.gather(*(take(r, 49) for r in readers))):
                assert got == list(range(first + 1, first + 50))
        assert read.await_count <= 2


@in_one_life(hot_bytes=1)
async def test_one_of_those_who_share_can_be_rewound(world: LogWorld, writer: LogWriter) -> None:
    await append_and_check(writer, *range(100))
    one, other = (writer.reader(None, name=name) for name in ("one", "other"))
    assert await take(one, 50) == list(range(50))
    place = one.place
    assert await take(other, 70) == list(range(70))
    waiting = asyncio.ensure_future(take(one, 50))
    await let_pass(1)
    await waiting
    one.rewind(place)
    other.rewind(None)
    assert await take(one, 50) == list(range(50, 100))
    assert await take(other, 100) == list(range(100))


@in_one_life(hot_bytes=1)
async def test_those_who_share_go_on_over_a_new_connection(
    world: LogWorld, writer: LogWriter
) -> None:
    await append_and_check(writer, *range(100))
    readers = [writer.reader(None, name="link") for _ in range(5)]
    for reader in readers:
        assert await take(reader, 50) == list(range(50))
    async with ending_run(writer):
        world.stream.break_connections()
    for reader in readers:
        assert await take(reader, 50) == list(range(50, 100))


@in_one_life(hot_bytes=1)
async def test_a_reader_that_was_refused_asks_again(world: LogWorld, writer: LogWriter) -> None:
    await append_and_check(writer, *range(10))
    reader = writer.reader(None, name="link")
    with patch.object(MemoryLog, "read", side_effect=LogRefused("no right to read")):
        for _ in range(2):
            with pytest.raises(LogRefused):
                await reader.next_batches()
    assert await take(reader, 10) == list(range(10))


@in_one_life()
async def test_a_reader_at_the_streams_end_finds_in_memory_what_is_confirmed_meanwhile(
    world: LogWorld, writer: LogWriter
) -> None:
    await append_and_check(writer, *range(5))
    writer.tail.restart(None, anchored=False)
    reader = writer.reader(None, name="link")
    waiting = asyncio.ensure_future(take(reader, 6))
    await append(writer, 5)
    assert await waiting == list(range(6))
    await until(lambda: reader.is_hot, "hot", 10)
