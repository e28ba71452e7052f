"""Appending to the log, and how the writer's life begins and ends; in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from relay.batches.name_set import NameSet
from relay.log.flights import LAST_BYTES_S
from relay.log.run import Appended, LogState
from relay.log.site_log import LogClosed, LogRefused
from relay.log.writer import LogWriter
from tests.log_batches import batch, batch_name
from tests.log_world import LogWorld, append, append_through, in_one_life
from tests.virtual_time import in_virtual_time, let_pass
from tests.waiting import until

# Appending


@in_one_life()
async def test_what_is_confirmed_is_logged_and_in_the_order_of_the_calls(
    world: LogWorld, writer: LogWriter
) -> None:
    assert await append(writer, *range(10)) == [Appended.LOGGED] * 10
    assert world.stored == list(range(10))
    assert all(batch_name(n) in writer.logged for n in range(10))


@in_one_life()
async def test_all_of_one_turn_of_the_loop_is_one_append(
    world: LogWorld, writer: LogWriter
) -> None:
    await append(writer, *range(10))
    assert len({id(chunk) for chunk in world.stream._chunks}) == 1


@in_one_life()
async def test_a_batch_is_appended_once_whoever_brings_it(
    world: LogWorld, writer: LogWriter
) -> None:
    assert await append(writer, 1) == [Appended.LOGGED]
    assert await append(writer, 1) == [Appended.ALREADY_LOGGED]
    assert world.stored == [1]


@in_one_life()
async def test_whoever_asks_has_what_was_appended_read_back_at_once(
    world: LogWorld, writer: LogWriter
) -> None:
    await append(writer, *range(3))
    world.stream.append_alien(batch(7)[1])
    loop = asyncio.get_running_loop()
    await append(writer, 8)
    began = loop.time()
    await writer.check_now()
    assert loop.time() - began < writer._settings.check_every_s / 4
    assert writer.checked is not None
    assert writer.checked.name == batch_name(8)
    assert writer.counts.aliens == 1


@in_one_life()
async def test_the_names_for_welcomes_are_of_this_run_and_hardly_old(
    world: LogWorld, writer: LogWriter
) -> None:
    def told() -> NameSet:
        return NameSet.decode(writer.encoded_names())

    await append(writer, *range(3))
    await let_pass(0.1)
    assert told() == writer.logged
    assert writer.encoded_names() is writer.encoded_names(), "hundreds of links ask at once"
    await append(writer, 3)
    await let_pass(0.1)
    assert told() == writer.logged
    world.stream.break_connections()
    await until(lambda: writer.run is None, "the run ended", 5)
    await writer.running()
    assert told() == writer.logged


@in_one_life()
async def test_a_second_copy_in_flight_waits_for_the_first(
    world: LogWorld, writer: LogWriter
) -> None:
    first = writer.append_nowait(*batch(1))
    await asyncio.sleep(0)
    second = writer.append_nowait(*batch(1))
    assert not second.done()
    assert await first is Appended.LOGGED
    assert await second is Appended.ALREADY_LOGGED
    assert world.stored == [1]


@in_one_life()
async def test_a_second_copy_fails_with_the_first_and_neither_counts_as_logged(
    world: LogWorld, writer: LogWriter
) -> None:
    first = writer.append_nowait(*batch(1))
    second = writer.append_nowait(*batch(1))
    await asyncio.sleep(0)
    world.stream.break_connections()
    for copy in (first, second):
        with pytest.raises(LogClosed):
            await copy
    assert batch_name(1) not in writer.logged
    await append_through(writer, 1)
    assert world.stored == [1]


@in_one_life()
async def test_a_cancelled_append_still_happens(world: LogWorld, writer: LogWriter) -> None:
    waiting = asyncio.ensure_future(writer.append(*batch(1)))
    await asyncio.sleep(0)
    waiting.cancel()
    assert await append(writer, 1) == [Appended.ALREADY_LOGGED]


@in_one_life()
async def test_what_was_stored_and_not_confirmed_is_logged_after_reading_back(
    world: LogWorld, writer: LogWriter
) -> None:
    await append(writer, 0)
    run = writer.run
    world.stream.break_after_storing()
    with pytest.raises(LogClosed):
        await append(writer, 1)
    again = await writer.running()
    assert run is not None
    assert again.id != run.id
    assert again.log_id == run.log_id
    assert run.ended.done()
    assert await append(writer, 1) == [Appended.ALREADY_LOGGED]
    assert world.stored == [0, 1]


@in_one_life()
async def test_an_append_without_a_connection_fails_at_once(
    world: LogWorld, writer: LogWriter
) -> None:
    world.stream.reachable = False
    world.stream.break_connections()
    await until(lambda: writer.run is None, "the connection is lost", 1)
    with pytest.raises(LogClosed, match="not connected"):
        await append(writer, 1)
    await let_pass(100)
    assert writer.run is None
    world.stream.reachable = True
    await append_through(writer, 1)
    assert world.stored == [1]


@in_one_life()
async def test_a_batch_that_is_too_large_is_refused_and_others_go_on(
    world: LogWorld, writer: LogWriter
) -> None:
    header, _ = batch(1)
    with pytest.raises(LogRefused, match="bytes"):
        await writer.append(header, bytes(world.stream.max_record_bytes + 1))
    assert await append(writer, 1) == [Appended.LOGGED]


# Connections


@in_one_life()
async def test_a_missing_log_is_waited_for(world: LogWorld, writer: LogWriter) -> None:
    await append(writer, *range(3))
    world.stream.delete()
    await until(lambda: "LogMissing" in writer.state[1], "it is known to be missing", 60)
    await let_pass(60)
    assert writer.state[0] is LogState.CONNECTING
    assert "LogMissing" in writer.state[1]
    world.stream.create()
    await writer.running()
    assert writer.run is not None
    assert len(writer.logged) == 0


@in_virtual_time
async def test_closing_ends_everything() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        reader = writer.reader(None, name="test")
        reading = asyncio.ensure_future(reader.next_batches())
        await let_pass(1)
        assert not reading.done()
    with pytest.raises(LogClosed):
        await reading
    with pytest.raises(LogClosed):
        await writer.running()
    with pytest.raises(LogClosed):
        await append(writer, 1)
    assert writer.state[0] is LogState.CLOSED


@in_virtual_time
async def test_closing_is_told_as_closing_and_not_as_a_lost_connection() -> None:
    world = LogWorld()
    async with world.writer():
        world.states.clear()
    assert world.states == [LogState.CLOSED]


@in_virtual_time
async def test_closing_does_not_wait_for_a_connection() -> None:
    world = LogWorld()
    world.stream.reachable = False
    writer = world.make_writer()
    living = asyncio.ensure_future(writer.run_forever())
    await let_pass(50)
    assert not living.done()
    start = asyncio.get_running_loop().time()
    await writer.close()
    await living
    assert asyncio.get_running_loop().time() - start < 0.1


@in_virtual_time
async def test_cancelling_ends_it_too() -> None:
    world = LogWorld()
    writer = world.make_writer()
    living = asyncio.ensure_future(writer.run_forever())
    await writer.running()
    await append(writer, 1)
    living.cancel()
    with pytest.raises(asyncio.CancelledError):
        await living
    assert writer.state[0] is LogState.CLOSED
    async with world.writer() as next_life:
        assert batch_name(1) in next_life.logged


# What may come after the end


async def ended_answered(*, waits_s: float, stuck: bool = False, cut: bool = False) -> bool:
    """Return True if a writer ended answered that had appended and then waited. Its last append is
    in a `stuck` socket, or went down with a connection that was `cut`.
    """
    world = LogWorld()
    async with world.writer() as writer:
        await append(writer, 1)
        await let_pass(waits_s)
        if stuck or cut:
            world.stream.hold_next_appends()
            late = asyncio.ensure_future(writer.append_nowait(*batch(2)))
            await let_pass(0.01)
            if cut:
                world.stream.break_connections()
                await writer.running()
            late.add_done_callback(lambda done: done.exception())
    return writer.ended_answered


@in_virtual_time
async def test_a_writer_ends_answered_once_nothing_of_it_can_come_into_the_log() -> None:
    assert await ended_answered(waits_s=2 * LAST_BYTES_S)
    # What an earlier connection, of the process before, left in its socket may yet come.
    assert not await ended_answered(waits_s=LAST_BYTES_S / 2)
    assert not await ended_answered(waits_s=2 * LAST_BYTES_S, stuck=True)
    assert not await ended_answered(waits_s=2 * LAST_BYTES_S, cut=True)
