"""What somebody else writes into the log: batches, garbage, the mark of a second node."""

from __future__ import annotations

import pytest

from relay.log.reader import LogGap, LogReader
from relay.log.site_log import LogClosed
from relay.log.writer import LogWriter
from tests.log_batches import batch, batch_name
from tests.log_world import (
    LogWorld,
    append,
    append_through,
    ending_run,
    in_one_life,
    mark,
    name_at,
    take,
    until_checked,
)
from tests.virtual_time import in_virtual_time, let_pass
from tests.waiting import until


async def reader_behind_two(writer: LogWriter) -> LogReader:
    """Return a reader that has read two batches, which the node has read back."""
    reader = writer.reader(None, name="test")
    await append(writer, 0, 1)
    await take(reader, 2)
    await until_checked(writer, 1)
    return reader


# Batches and garbage


@in_one_life()
async def test_a_strangers_batch_is_logged_and_read_by_all_while_the_node_is_idle(
    world: LogWorld, writer: LogWriter
) -> None:
    reader = writer.reader(None, name="test")
    await append(writer, 0, 1, 2)
    assert await take(reader, 3) == [0, 1, 2]
    await until_checked(writer, 2)
    world.stream.append_alien(batch(7)[1])
    assert await take(reader, 1) == [7]
    assert batch_name(7) in writer.logged
    assert writer.counts.aliens == 1


@in_one_life()
async def test_a_strangers_batch_between_ours_sends_the_readers_back(
    world: LogWorld, writer: LogWriter
) -> None:
    reader = await reader_behind_two(writer)
    await append(writer, 2)
    world.stream.append_alien(batch(77)[1])
    await append(writer, 3)
    first = await take(reader, 2)
    assert first == [2, 3]
    assert name_at(writer.safe_position(reader.place)) == batch_name(1)
    again: list[int] = []
    while 77 not in again or 3 not in again:
        again += await take(reader, 1)
    assert again[-3:] == [2, 77, 3] or again[-2:] == [77, 3]
    assert writer.counts.readers_sent_back == 1


@in_one_life()
async def test_what_a_dead_connection_still_carried_lands_beside_its_successors(
    world: LogWorld, writer: LogWriter
) -> None:
    reader = writer.reader(None, name="test")
    await append(writer, 0)
    world.stream.hold_next_appends()
    stuck = [writer.append_nowait(*batch(n)) for n in (1, 2, 3)]
    await let_pass(0.01)
    assert not any(one.done() for one in stuck)
    world.stream.break_connections()
    for one in stuck:
        with pytest.raises(LogClosed):
            await one
    await append_through(writer, 1)
    world.stream.release_held()  # 1 again, then 2 and 3, which nobody sent again yet
    await append_through(writer, 2, 3, 4)
    assert sorted(set(world.stored)) == [0, 1, 2, 3, 4]
    got: list[int] = []
    while set(got) != {0, 1, 2, 3, 4}:
        got += await take(reader, 1)
    first_seen = list(dict.fromkeys(got))
    assert first_seen == [0, 1, 2, 3, 4]
    await append(writer, 5)
    while got[-1] != 5:
        got += await take(reader, 1)


@in_virtual_time
async def test_a_record_that_is_no_batch_is_told_once_and_reading_goes_on() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        reader = writer.reader(None, name="test")
        await append(writer, 0)
        world.stream.append_alien(b"garbage")
        world.stream.append_alien(b"other", flaw="not one AMQP 1.0 data section")
        damaged = batch(5)[1][:40]
        world.stream.append_alien(damaged)
        await append(writer, 1)
        assert await take(reader, 2) == [0, 1]
        await until_checked(writer, 1)
        cold = writer.reader(None, name="cold")
        assert await take(cold, 2) == [0, 1]
    assert [(offset, data) for offset, data, _ in world.bad_records] == [
        (1, b"garbage"),
        (2, b"other"),
        (3, damaged),
    ]
    assert all(reason for _, _, reason in world.bad_records)
    async with world.writer() as writer:
        assert len(world.bad_records) == 3


# One node a site


@in_one_life()
async def test_somebody_elses_mark_after_ours_says_that_we_are_superseded(
    world: LogWorld, writer: LogWriter
) -> None:
    await writer.append(*mark(0))
    await until_checked(writer, 0)
    theirs, data = mark(0, incarnation=b"theirs--")
    world.stream.append_alien(data)
    await until(lambda: world.superseded, "a mark of another's", 5)
    assert world.superseded == [theirs]


@in_virtual_time
async def test_marks_before_ours_and_our_own_earlier_ones_supersede_nobody() -> None:
    world = LogWorld()
    world.stream.append_alien(mark(0, incarnation=b"before--")[1])
    async with world.writer() as writer:
        await writer.append(*mark(0, incarnation=b"ours-1--"))
        await writer.append(*mark(0, incarnation=b"ours-2--"))
        await until_checked(writer, 0, incarnation=b"ours-2--")
        world.stream.append_alien(mark(0, incarnation=b"ours-1--")[1])
        other_site, data = batch(0, origin="tokyo", incarnation=b"tokyo---")
        world.stream.append_alien(data)
        await until(lambda: other_site.name in writer.logged, "all is read", 5)
        assert world.superseded == []


@in_one_life()
async def test_a_mark_that_came_while_the_connection_was_lost_is_noticed(
    world: LogWorld, writer: LogWriter
) -> None:
    await writer.append(*mark(0))
    await until_checked(writer, 0)
    async with ending_run(writer):
        world.stream.break_connections()
        theirs, data = mark(0, incarnation=b"theirs--")
        world.stream.append_alien(data)
    assert world.superseded == [theirs]


@in_one_life()
async def test_a_copy_of_an_eaten_batch_is_not_taken_for_the_place_behind_it(
    world: LogWorld, writer: LogWriter
) -> None:
    reader = await reader_behind_two(writer)
    # A former owner's appends land, and retention eats the head, before this node reads back.
    for number in (7, 77, 1):
        world.stream.append_alien(batch(number)[1])
    first = world.stream.records[-2].offset
    world.stream.truncate_head(first)
    with pytest.raises(LogGap) as gap:
        await take(reader, 100)
    assert gap.value.first == first
    reader.rewind(None)
    assert await take(reader, 1) == [77]
