"""What a shared reading keeps for its readers, and what becomes of one that falls out of it."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

from relay.log.scans.scan_cursor import ScanCursor
from relay.log.scans.shared_scan import LINGER_S, LogScans
from tests.log_batches import batch, sequences
from tests.log_scans import FORMAT, scans_of, stream_of, take_from, watched_reads
from tests.virtual_time import in_virtual_time, let_pass


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
    with patch("relay.log.scans.shared_scan._NEAR", 0):
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
