"""A writer's readers that are behind: they share one reading of the log."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest

from relay.log.memory_log import MemoryLog
from relay.log.site_log import LogRefused
from relay.log.writer import LogWriter
from tests.log_scans import watched_reads
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
