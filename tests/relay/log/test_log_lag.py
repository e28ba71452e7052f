"""How far a reader is behind, in messages and bytes."""

from __future__ import annotations

from tests.log_batches import batch
from tests.log_world import (
    LogWorld,
    append,
    ending_run,
    log_in_a_life_before,
    take_batches,
    until_checked,
)
from tests.virtual_time import in_virtual_time


@in_virtual_time
async def test_lag_is_counted_in_messages_and_bytes() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        reader = writer.reader(None, name="test")
        await append(writer, *range(10), messages=3)
        assert writer.lag(None).messages == 30
        got = await take_batches(reader, 10)
        size = got[0].header.byte_count
        for number, one in enumerate(got):
            assert writer.lag(one.place) == (3 * (9 - number), size * (9 - number))
        await until_checked(writer, 9)
        positions = [writer.safe_position(one.place) for one in got]
    async with world.writer() as writer:
        await append(writer, 10, messages=1)
        for number, place in enumerate(positions):
            assert writer.lag(place).messages == 3 * (9 - number) + 1


@in_virtual_time
async def test_what_a_stranger_wrote_before_ours_is_no_lag_of_who_has_read_ours() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        reader = writer.reader(None, name="test")
        await append(writer, 0)
        await until_checked(writer, 0)
        world.stream.append_alien(batch(0, origin="stranger", messages=5)[1])
        await append(writer, 1, 2, messages=3)
        assert (await until_checked(writer, 2)).name == batch(2)[0].name
        reader.rewind(None)
        places = [one.place for one in await take_batches(reader, 4)]
        assert [writer.lag(place).messages for place in places] == [11, 6, 3, 0]


@in_virtual_time
async def test_who_has_read_a_late_copy_at_the_end_has_nothing_before_it() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        await append(writer, 0, 1)
    world.stream.append_alien(batch(1)[1], batch(0)[1])  # out of a dead writer's socket
    async with world.writer() as writer:
        reader = writer.reader(None, name="test")
        places = [one.place for one in await take_batches(reader, 4)]
        lags = [writer.lag(writer.safe_position(place)).messages for place in places]
        assert lags == [2, 0, 0, 0]


@in_virtual_time
async def test_lag_far_back_is_about_right() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        reader = writer.reader(None, name="test")
        for start in range(0, 30_000, 1000):
            await append(writer, *range(start, start + 1000))
        await until_checked(writer, 29_999)
        places = [b.place for b in await take_batches(reader, 2000)]
        for number in (0, 500, 1999):
            true = 2 * (29_999 - number)
            assert abs(writer.lag(places[number]).messages - true) < 1200
        position = writer.safe_position(places[1999])
    async with world.writer() as writer:
        assert abs(writer.lag(position).messages - 2 * 28_000) < 1200


@in_virtual_time
async def test_lag_from_the_start_counts_what_the_log_has_and_not_what_it_ever_had() -> None:
    world = LogWorld()
    await log_in_a_life_before(world, 100)
    world.stream.truncate_head(90)
    async with world.writer() as writer:
        assert writer.lag(None).messages == 20
        async with ending_run(writer):
            world.stream.create()
        await append(writer, 200, 201)
        assert writer.lag(None).messages == 4
