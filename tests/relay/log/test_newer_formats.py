"""A log that a newer version has written to: its node stops there, and loses nothing."""

from __future__ import annotations

import asyncio

from relay.batches.known_formats import FIRST, KNOWN
from relay.log.run import Appended, LogState
from tests.log_batches import batch, batch_name
from tests.log_world import LogWorld, append, name_at, take, until_checked
from tests.virtual_time import in_virtual_time, let_pass
from tests.waiting import until


def older() -> LogWorld:
    return LogWorld(formats=FIRST)


@in_virtual_time
async def test_a_newer_batch_is_told_of_with_its_place_and_neither_quarantined_nor_passed() -> None:
    world = older()
    async with world.writer() as writer:
        reader = writer.reader(None, name="test")
        await append(writer, 0)
        await until_checked(writer, 0)
        world.stream.append_alien(batch(7, format=2)[1])
        world.stream.append_alien(batch(8)[1])
        await until(lambda: world.unknown, "it is told of", 60)
        assert "batch format 2, and this version of Isthmus reads only 1" in str(world.unknown[0])
        assert world.unknown[0].offset == world.stream.records[1].offset
        assert await take(reader, 1) == [0]
        more = asyncio.ensure_future(take(reader, 1))
        await let_pass(600)
        assert not more.done()
        assert (world.bad_records, len(world.unknown)) == ([], 1)
        assert name_at(writer.safe_position(reader.place)) == batch_name(0)
        # What is in hand may still be logged, so that the node ends in order.
        assert await append(writer, 1) == [Appended.LOGGED]
        more.cancel()


@in_virtual_time
async def test_a_node_that_finds_a_newer_batch_when_it_starts_does_not_begin() -> None:
    world = older()
    async with world.writer() as writer:
        await append(writer, 0, 1)
        await until_checked(writer, 1)
    world.stream.append_alien(batch(7, format=2)[1])
    writer = world.make_writer()
    living = asyncio.ensure_future(writer.run_forever())
    await until(lambda: world.unknown, "it is told of", 60)
    assert writer.run is None
    assert writer.state[0] is LogState.CHECKING
    await writer.close()
    await living
    assert world.bad_records == []


@in_virtual_time
async def test_the_upgraded_node_goes_on_where_the_older_one_stopped() -> None:
    world = older()
    async with world.writer() as writer:
        reader = writer.reader(None, name="test")
        await append(writer, 0)
        place = (await reader.next_batches())[-1].place
        await until_checked(writer, 0)
        position = writer.safe_position(place)
        world.stream.append_alien(batch(7)[1])
        world.stream.append_alien(batch(8, format=2)[1])
        await until(lambda: world.unknown, "it is told of", 60)
        await append(writer, 1)
    world.formats = KNOWN
    async with world.writer() as writer:
        assert await take(writer.reader(position, name="test"), 3) == [7, 8, 1]
        assert all(batch_name(number) in writer.logged for number in (0, 7, 8, 1))
    assert world.bad_records == []


@in_virtual_time
async def test_strangers_batches_before_a_newer_one_are_not_passed_by() -> None:
    world = older()
    async with world.writer() as writer:
        reader = writer.reader(None, name="test")
        await append(writer, 0)
        await until_checked(writer, 0)
        await take(reader, 1)
        world.stream.append_alien(batch(77)[1])
        world.stream.append_alien(batch(8, format=2)[1])
        await append(writer, 1)
        assert await take(reader, 1) == [1]  # hot, and past what it never gave
        await until(lambda: world.unknown, "it is told of", 60)
        assert await take(reader, 1) == [77]
        assert name_at(writer.safe_position(reader.place)) in (batch_name(0), batch_name(77))
