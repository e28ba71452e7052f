"""Readers of the log: over to memory and back, rewound, and gaps that retention ate."""

from __future__ import annotations

import asyncio

import pytest

from relay.batches.batch import BatchName
from relay.log.open_gap import just_before
from relay.log.reader import LogGap, PlaceLost
from relay.log.site_log import LogClosed
from relay.log.writer import LogWriter
from tests.log_batches import batch
from tests.log_world import (
    LogWorld,
    append,
    append_and_check,
    append_through,
    in_one_life,
    mark,
    positions_of_a_life_before,
    take,
    take_batches,
)
from tests.virtual_time import in_virtual_time, let_pass

# From the stream and from memory


@in_one_life()
async def test_a_reader_that_has_caught_up_reads_from_memory(
    world: LogWorld, writer: LogWriter
) -> None:
    reader = writer.reader(None, name="test")
    await append(writer, 0, 1)
    assert await take(reader, 2) == [0, 1]
    assert reader.is_hot
    reading = asyncio.ensure_future(take(reader, 2))
    await append(writer, 2)
    await append(writer, 3)
    assert await reading == [2, 3]
    assert reader.is_hot


@in_virtual_time
async def test_a_reader_of_a_whole_log_reads_the_stream_and_then_memory() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        await append(writer, *range(50))
    async with world.writer() as writer:
        reader = writer.reader(None, name="test")
        assert await take(reader, 50) == list(range(50))
        await append(writer, 50)
        assert await take(reader, 1) == [50]
        assert reader.is_hot


@in_virtual_time
async def test_a_reader_begins_after_its_place() -> None:
    world = LogWorld()
    stored = await positions_of_a_life_before(world, 50)
    async with world.writer() as writer:
        for number in (0, 17, 48):
            reader = writer.reader(stored[number], name="again")
            assert await take(reader, 1) == [number + 1]
        at_end = writer.reader(stored[49], name="at the end")
        await append(writer, 50)
        assert await take(at_end, 1) == [50]
        assert at_end.is_hot


@in_one_life(hot_bytes=20_000)
async def test_a_reader_that_falls_out_of_memory_catches_up_from_the_stream(
    world: LogWorld, writer: LogWriter
) -> None:
    slow, fast = writer.reader(None, name="slow"), writer.reader(None, name="fast")
    await append(writer, 0)
    assert await take(slow, 1) == [0]
    for number in range(1, 200):
        await append(writer, number)
        if number % 7 == 0:
            await fast.next_batches()
    assert await take(slow, 199) == list(range(1, 200))
    await append(writer, 200)
    assert await take(slow, 1) == [200]
    assert slow.is_hot


@in_one_life(hot_bytes=100_000)
async def test_a_reader_changes_over_while_batches_keep_coming(
    world: LogWorld, writer: LogWriter
) -> None:
    await append(writer, *range(500))

    async def keep_appending() -> None:
        for number in range(500, 2000):
            await append(writer, number)

    appending = asyncio.ensure_future(keep_appending())
    reader = writer.reader(None, name="test")
    assert await take(reader, 2000) == list(range(2000))
    await appending


@in_one_life(hot_bytes=20_000)
async def test_a_cancelled_reader_loses_nothing(world: LogWorld, writer: LogWriter) -> None:
    await append(writer, *range(100))
    reader = writer.reader(None, name="test")
    got: list[int] = []
    patience = 0

    async def keep_appending() -> None:
        for number in range(100, 400):
            await append(writer, number)

    appending = asyncio.ensure_future(keep_appending())
    while len(got) < 400:
        waiting = asyncio.ensure_future(reader.next_batches(max_bytes=500))
        patience = (patience + 1) % 9
        for _ in range(patience):
            await asyncio.sleep(0)
        if not waiting.done():
            waiting.cancel()
        await asyncio.wait([waiting])
        if not waiting.cancelled():
            got += [b.header.name.sequence for b in waiting.result()]
        else:
            await let_pass(0.0001)  # else the virtual clock stands, and no append is confirmed
    assert got == list(range(400))
    await appending


@in_one_life()
async def test_readers_go_on_over_a_new_connection(world: LogWorld, writer: LogWriter) -> None:
    hot, cold = writer.reader(None, name="hot"), writer.reader(None, name="cold")
    await append(writer, *range(10))
    assert await take(hot, 10) == list(range(10))
    world.stream.break_after_storing()
    with pytest.raises(LogClosed):
        await append(writer, 10)
    await append_through(writer, 10, 11)
    assert await take(hot, 2) == [10, 11]
    assert await take(cold, 12) == list(range(12))


@in_one_life()
async def test_next_batches_takes_up_to_about_so_many_bytes(
    world: LogWorld, writer: LogWriter
) -> None:
    size = len(batch(0)[1])
    await append(writer, *range(10))
    for reader in (writer.reader(None, name="hot"), writer.reader(None, name="again")):
        got = await reader.next_batches(max_bytes=3 * size)
        assert len(got) == 3
        assert len(await reader.next_batches(max_bytes=1)) == 1
        assert len(await reader.next_batches()) == 6


@in_one_life(hot_bytes=10_000)
async def test_a_rewound_reader_gives_again_what_follows(
    world: LogWorld, writer: LogWriter
) -> None:
    reader = writer.reader(None, name="test")
    await append(writer, *range(30))
    got = await take_batches(reader, 30)
    waiting = asyncio.ensure_future(reader.next_batches(max_bytes=1))
    await let_pass(1)
    assert not waiting.done()
    reader.rewind(got[27].place)
    assert [b.header.name.sequence for b in await waiting] == [28]
    reader.rewind(got[3].place)
    assert await take(reader, 26) == list(range(4, 30))
    reader.rewind(None)
    assert await take(reader, 1) == [0]


@in_one_life()
async def test_a_reader_waiting_on_the_stream_can_be_rewound(
    world: LogWorld, writer: LogWriter
) -> None:
    await append_and_check(writer, *range(5))
    world.stream.append_alien(b"not a batch")
    writer.tail.restart(None, anchored=False)  # as after a stranger's batch
    reader = writer.reader(None, name="test")
    got = await take_batches(reader, 5)
    waiting = asyncio.ensure_future(take(reader, 2))
    await let_pass(10)
    assert not waiting.done()
    reader.rewind(got[2].place)
    assert await waiting == [3, 4]


# Places that are gone


@in_virtual_time
async def test_a_place_that_retention_ate_is_a_gap() -> None:
    world = LogWorld()
    stored = await positions_of_a_life_before(world, 10)
    world.stream.truncate_head(6)
    async with world.writer() as writer:
        with pytest.raises(LogGap) as gap:
            await writer.reader(stored[3], name="late").next_batches()
        assert gap.value.first == 6
        assert gap.value.place == stored[3]
        fine = writer.reader(stored[6], name="in time")
        assert await take(fine, 3) == [7, 8, 9]
        late = writer.reader(stored[3], name="late")
        with pytest.raises(LogGap):
            await late.next_batches()
        late.rewind(None)
        assert await take(late, 4) == [6, 7, 8, 9]


@in_virtual_time
async def test_it_is_no_gap_where_nothing_that_was_needed_is_gone() -> None:
    world = LogWorld()
    stored = await positions_of_a_life_before(world, 10)
    world.stream.truncate_head(6)
    async with world.writer() as writer:
        # The very next one is the log's first.
        assert await take(writer.reader(stored[5], name="just"), 4) == [6, 7, 8, 9]
        # Looked for from further back, for what is acknowledged up to 7.
        for start in (stored[2], None):
            back = writer.reader(start, name="back", reached=stored[7])
            assert await take(back, 4) == [6, 7, 8, 9]
            with pytest.raises(LogGap) as gap:
                await writer.reader(start, name="too far", reached=stored[4]).next_batches()
            assert gap.value.place == stored[4]


@in_virtual_time
async def test_behind_an_accepted_gap_it_begins_with_what_there_is_and_no_later() -> None:
    world = LogWorld()
    await positions_of_a_life_before(world, 10)
    world.stream.truncate_head(6)
    async with world.writer() as writer:
        assert writer.safe_position(just_before(6)) == just_before(6)
        assert await take(writer.reader(just_before(6), name="accepted"), 4) == [6, 7, 8, 9]
    world.stream.truncate_head(8)
    async with world.writer() as writer:
        # What retention has eaten since nobody has accepted.
        with pytest.raises(LogGap) as gap:
            await writer.reader(just_before(6), name="late").next_batches()
        assert gap.value.first == 8


@in_virtual_time
async def test_a_place_that_the_log_never_had_is_lost_and_not_a_gap() -> None:
    world = LogWorld()
    *_, stored = await positions_of_a_life_before(world, 10)
    assert stored is not None
    async with world.writer() as writer:
        strange = stored._replace(name=BatchName(stored.name.series, 77))
        for place in (strange, strange._replace(offset=3), strange._replace(offset=500)):
            with pytest.raises(PlaceLost) as lost:
                await writer.reader(place, name="lost").next_batches()
            assert not isinstance(lost.value, LogGap)


# To the end, for recovery


@in_one_life()
async def test_reading_to_the_end_stops_there(world: LogWorld, writer: LogWriter) -> None:
    assert [b async for b in writer.read_to_end(0)] == []
    await append(writer, *range(10))
    await writer.append(*mark(10))
    got = [b async for batches in writer.read_to_end(4) for b in batches]
    assert [b.header.name.sequence for b in got] == list(range(4, 11))
    assert [b.place.offset for b in got] == list(range(4, 11))
    assert [b async for b in writer.read_to_end(50)] == []


@in_virtual_time
async def test_a_reader_that_retention_overtakes_says_so() -> None:
    world = LogWorld()
    stored = await positions_of_a_life_before(world, 8000)
    async with world.writer() as writer:
        slow, fast = (writer.reader(stored[9], name=name) for name in ("slow", "fast"))
        assert await take(slow, 10) == list(range(10, 20))
        await take(fast, 7000)  # the slow one's stretches are forgotten
        slow_at = slow.place
        world.stream.truncate_head(3000)
        with pytest.raises(LogGap) as gap:
            await take(slow, 1)
        assert (gap.value.place, gap.value.first) == (slow_at, 3000)
        with pytest.raises(LogGap):
            await take(slow, 1)
        slow.rewind(None)
        assert await take(slow, 1) == [3000]


@in_virtual_time
async def test_a_reader_passes_what_is_eaten_where_it_was_done_with_it() -> None:
    world = LogWorld()
    stored = await positions_of_a_life_before(world, 8000)
    async with world.writer() as writer:
        done, undone, fast = (
            writer.reader(None, name=str(number), reached=stored[number])
            for number in (3500, 2500, 7999)
        )
        for slow in (done, undone):
            assert await take(slow, 10) == list(range(10))
        await take(fast, 8000)
        world.stream.truncate_head(3000)
        assert await take(done, 1) == [3000]
        with pytest.raises(LogGap):
            await take(undone, 1)
