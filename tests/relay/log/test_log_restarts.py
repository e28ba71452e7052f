"""What a node knows of its log in its next life, and what it may forget."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from relay.log.run import Appended
from relay.log.snapshot import LogSnapshot
from relay.log.writer import LogWriter
from tests.log_batches import batch_name
from tests.log_world import (
    LogWorld,
    append,
    append_and_check,
    in_one_life,
    log_in_a_life_before,
    take,
)
from tests.virtual_time import in_virtual_time, let_pass


@in_virtual_time
async def test_a_restart_knows_what_was_logged_without_reading_the_whole_log() -> None:
    world = LogWorld()
    log_id = await log_in_a_life_before(world, 1000)
    world.stream.truncate_head(500)  # what is known is not read again
    async with world.writer() as writer:
        assert len(writer.logged) == 1000
        assert (await writer.running()).log_id == log_id
        assert writer.counts.rebuilds == 0


@in_virtual_time
async def test_a_killed_node_finds_what_it_appended_after_its_last_snapshot() -> None:
    world = LogWorld()
    async with world.killed_writer() as writer:
        await append_and_check(writer, *range(5))
        await append(writer, 5, 6)
    async with world.writer() as writer:
        assert len(writer.logged) == 7
        assert await append(writer, 6) == [Appended.ALREADY_LOGGED]


@in_virtual_time
async def test_without_a_snapshot_the_log_says_what_is_logged() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        await append(writer, *range(5))
        log_id = (await writer.running()).log_id
    world.memory.data = None
    async with world.writer() as writer:
        assert len(writer.logged) == 5
        assert (await writer.running()).log_id != log_id


@in_virtual_time
async def test_a_damaged_snapshot_is_rebuilt_from_the_log() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        await append(writer, *range(5))
    assert world.memory.data is not None
    world.memory.data = world.memory.data[:-3]
    async with world.writer() as writer:
        assert len(writer.logged) == 5


@in_one_life()
async def test_a_snapshot_is_saved_about_once_a_second_and_only_when_something_changed(
    world: LogWorld, writer: LogWriter
) -> None:
    for number in range(1000):
        await append(writer, number)
        await let_pass(0.01)
    busy = world.memory.saves
    assert 5 <= busy <= 15
    await let_pass(1000)
    assert world.memory.saves <= busy + 2


@in_virtual_time
async def test_after_a_restart_everything_is_read_however_many_names_there_were() -> None:
    world = LogWorld()
    half, full = 300, 500  # a snapshot of a block that is not full, one of the same block full
    async with world.writer() as writer:
        await append_and_check(writer, *range(half))
        await append_and_check(writer, *range(half, full))
    async with world.writer() as writer:
        assert writer.counts.copies == 0
        await append_and_check(writer, full)
        reader = writer.reader(None, name="a link")
        async with asyncio.timeout(60):
            assert await take(reader, full + 1) == list(range(full + 1))


@in_virtual_time
async def test_what_a_snapshot_knows_without_its_place_is_read_all_the_same() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        await append_and_check(writer, *range(500))
        await append_and_check(writer, *range(500, 700))
    assert world.memory.data is not None
    snapshot = LogSnapshot.decode(world.memory.data)
    world.memory.data = replace(snapshot, blocks=snapshot.blocks[:1]).encode()
    async with world.writer() as writer:
        assert writer.counts.copies == 200
        await append_and_check(writer, 700)
        reader = writer.reader(None, name="a link")
        async with asyncio.timeout(60):
            assert await take(reader, 701) == list(range(701))


@in_virtual_time
async def test_incarnations_that_ended_before_the_window_are_forgotten() -> None:
    world = LogWorld()
    old, new = b"old-old-", b"new-new-"
    async with world.writer() as writer:
        await append(writer, 0, 1, incarnation=old, published_ms=1_000)
        await append(writer, 0, incarnation=new, published_ms=50_000)
        await append(writer, 0, origin="tokyo", published_ms=2_000)
        assert writer.forget_before(1_000) == 0
        assert writer.forget_before(60_000) == 1
        assert batch_name(1, incarnation=old) not in writer.logged
        assert batch_name(0, incarnation=new) in writer.logged
        # Tokyo's only one is old, but it is its latest.
        assert batch_name(0, origin="tokyo") in writer.logged
