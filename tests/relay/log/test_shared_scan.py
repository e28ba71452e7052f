"""Readers that are behind share one reading: who joins whom, what they get, and how it ends."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest

from relay.log.memory_log import MemoryLog, MemoryStream
from relay.log.scans.scan_cursor import ScanCursor
from relay.log.scans.shared_scan import LogScans
from relay.log.site_log import LogClosed, LogMissing, LogRefused
from tests.log_batches import batch, sequences
from tests.log_scans import FORMAT, scans_of, stream_of, take_from, watched_reads
from tests.virtual_time import in_virtual_time, let_pass

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
    with watched_reads() as read, patch("relay.log.scans.shared_scan._NEAR", 1000):
        behind, ahead = scans.cursor(0), scans.cursor(4000)
        assert (await take_from(ahead, 10))[0] == 4000
        assert (await take_from(behind, 10))[0] == 0
    assert [call.args[1] for call in read.await_args_list] == [4000, 0]


@in_virtual_time
async def test_a_reader_leaves_a_scan_that_does_not_come_by() -> None:
    scans = await scans_of(stream_of(5000))
    with watched_reads() as read, patch("relay.log.scans.scan_cursor._PATIENCE_BYTES", 1_000_000):
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
