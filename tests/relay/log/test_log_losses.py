"""A log that lost its tail or was made anew: the names that it has, and where readers go on."""

from __future__ import annotations

import pytest

from relay.batches.name_set import NameSet
from relay.log.reader import LogGap
from relay.log.run import Appended, LogSettings
from relay.log.site_log import UNCONFIRMED_S
from relay.log.snapshot import LogSnapshot
from relay.log.writer import LogWriter
from tests.log_batches import INCARNATION, batch, batch_name
from tests.log_world import (
    LogWorld,
    append,
    append_and_check,
    ending_run,
    in_one_life,
    log_in_a_life_before,
    name_at,
    positions_of_a_life_before,
    take,
    take_batches,
    until_checked,
)
from tests.virtual_time import in_virtual_time, let_pass

# What is logged


@in_one_life()
async def test_a_tail_lost_under_a_living_node_leaves_the_logged_set(
    world: LogWorld, writer: LogWriter
) -> None:
    await append_and_check(writer, *range(10))
    async with ending_run(writer) as run:
        world.stream.lose_tail(4)
    again = await writer.running()
    assert again.log_id != run.log_id
    assert sorted(name.sequence for name in writer.logged) == list(range(6))
    assert await append(writer, 6) == [Appended.LOGGED]


@in_one_life()
async def test_a_log_whose_new_leader_shows_nothing_yet_is_neither_lost_nor_made_anew(
    world: LogWorld, writer: LogWriter
) -> None:
    await append_and_check(writer, *range(10))
    reader = writer.reader(None, name="test")
    await take(reader, 10)
    async with ending_run(writer) as run:
        world.stream.hide()
    again = await writer.running()
    assert again.log_id == run.log_id
    assert len(writer.logged) == 10
    assert await append(writer, 9, 10) == [Appended.ALREADY_LOGGED, Appended.LOGGED]
    await take(reader, 1)
    assert world.stored == list(range(11))
    assert world.bad_records == []


@in_one_life()
async def test_a_replicated_log_that_is_empty_is_believed_once_it_confirms(
    world: LogWorld, writer: LogWriter
) -> None:
    await append_and_check(writer, 0)
    async with ending_run(writer) as run:
        world.stream.create()
        world.stream.hide()
    again = await writer.running()
    assert again.log_id != run.log_id
    assert await append(writer, 0) == [Appended.LOGGED]
    assert world.stored == [0]
    assert world.bad_records == []


@in_one_life()
async def test_a_new_leader_that_confirms_nothing_is_left_for_another_connection(
    world: LogWorld, writer: LogWriter
) -> None:
    await append_and_check(writer, *range(10))
    async with ending_run(writer) as run:
        world.stream.hide()
        world.stream.hold_next_appends()
        await let_pass(3 * UNCONFIRMED_S)
        assert writer.counts.connections >= 3
        world.stream.release_held()
    assert (await writer.running()).log_id == run.log_id
    assert len(writer.logged) == 10
    assert world.bad_records == []


@in_one_life(check_every_s=1000)
async def test_a_tail_lost_before_it_was_read_back_leaves_the_logged_set(
    world: LogWorld, writer: LogWriter
) -> None:
    await append_and_check(writer, *range(5))
    await append(writer, *range(5, 10))
    async with ending_run(writer) as run:
        world.stream.lose_tail(3)
    again = await writer.running()
    assert again.log_id != run.log_id
    assert len(writer.logged) == 7


@in_virtual_time
async def test_a_tail_lost_while_the_node_was_away_leaves_the_logged_set() -> None:
    world = LogWorld()
    log_id = await log_in_a_life_before(world, 3000)
    world.stream.lose_tail(2500)
    async with world.writer() as writer:
        assert (await writer.running()).log_id != log_id
        assert len(writer.logged) == 500
        assert writer.counts.names_lost == 2500
        assert await append(writer, 500) == [Appended.LOGGED]
    async with world.writer() as writer:
        assert writer.counts.tails_lost == 0
        assert len(writer.logged) == 501


@in_virtual_time
async def test_a_name_confirmed_after_the_last_snapshot_and_lost_is_not_logged() -> None:
    world = LogWorld()
    async with world.killed_writer() as writer:
        await append_and_check(writer, *range(5))
        await append(writer, 5, 6)
        assert batch_name(6) in writer.logged
    world.stream.lose_tail(2)
    async with world.writer() as writer:
        assert batch_name(5) not in writer.logged
        assert await append(writer, 6) == [Appended.LOGGED]


@in_virtual_time
async def test_more_lost_than_is_remembered_is_a_log_made_anew() -> None:
    world = LogWorld()
    await log_in_a_life_before(world, 12_000)
    world.stream.lose_tail(11_900)
    async with world.writer() as writer:
        assert len(writer.logged) == 100
        assert writer.counts.rebuilds == 1


@in_virtual_time
async def test_a_log_that_begins_behind_all_that_is_remembered_was_eaten_not_made_anew() -> None:
    world = LogWorld()
    async with world.killed_writer() as writer:
        await append_and_check(writer, *range(5))
        position = writer.checked
        log_id, kept = (await writer.running()).log_id, world.memory.data
        await append_and_check(writer, *range(5, 20))
    world.memory.data = kept  # what was written down since, a power cut has taken
    world.stream.truncate_head(world.stream.records[10].offset)
    async with world.writer() as writer:
        assert (await writer.running()).log_id == log_id
        assert batch_name(3) in writer.logged
        assert batch_name(12) in writer.logged
        assert writer.counts.rebuilds == 0
        with pytest.raises(LogGap):
            await writer.reader(position, name="from before").next_batches()


@in_virtual_time
async def test_offsets_used_again_after_a_loss_are_not_taken_for_what_stood_there() -> None:
    world = LogWorld()
    await log_in_a_life_before(world, 10)
    world.stream.lose_tail(5)
    world.stream.append_alien(*(batch(n, origin="tokyo")[1] for n in range(7)))
    async with world.writer() as writer:
        assert sorted(str(n) for n in writer.logged) == sorted(
            [str(batch_name(n)) for n in range(5)]
            + [str(batch_name(n, origin="tokyo")) for n in range(7)]
        )


@in_one_life()
async def test_a_log_made_anew_under_a_living_node_is_read_whole(
    world: LogWorld, writer: LogWriter
) -> None:
    await append(writer, *range(10))
    async with ending_run(writer) as run:
        world.stream.create()
        world.stream.append_alien(batch(0, origin="tokyo")[1])
    again = await writer.running()
    assert again.log_id != run.log_id
    assert list(writer.logged) == [batch_name(0, origin="tokyo")]
    assert await append(writer, 9) == [Appended.LOGGED]


# Readers


@in_one_life()
async def test_a_reader_on_a_lost_name_goes_on_where_the_loss_began(
    world: LogWorld, writer: LogWriter
) -> None:
    reader = writer.reader(None, name="test")
    behind = writer.reader(None, name="behind")
    await append(writer, *range(10))
    await take(reader, 10)
    await take(behind, 3)
    await until_checked(writer, 9)
    async with ending_run(writer):
        world.stream.lose_tail(4)
    await append(writer, 8, 9, 6, 7)
    assert await take(reader, 4) == [8, 9, 6, 7]
    assert await take(behind, 7) == [3, 4, 5, 8, 9, 6, 7]


@in_virtual_time
async def test_a_position_from_before_a_loss_does_not_skip_what_was_logged_after_it() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        reader = writer.reader(None, name="test")
        await append(writer, *range(10))
        await take(reader, 10)
        await until_checked(writer, 9)
        done = reader.place
        position = writer.safe_position(done)
    world.stream.lose_tail(4)
    for _ in range(2):
        async with world.writer() as writer:
            # 9 comes again, behind others that the reader never saw.
            await append_and_check(writer, 50, 51, 9, 52)
            again = writer.reader(position, name="stored")
            assert await take(again, 4) == [50, 51, 9, 52]
            assert name_at(writer.safe_position(done)) == batch_name(5)
            now = writer.safe_position(again.place)
            assert now is not None
            assert now.name == batch_name(52)


@in_virtual_time
async def test_a_position_in_a_log_that_is_gone_skips_nothing_though_its_heir_was_found_empty() -> (
    None
):
    world = LogWorld()
    positions = await positions_of_a_life_before(world, 10)
    world.stream.create()
    for _ in range(2):
        async with world.writer() as writer:
            await writer.running()
    async with world.writer() as writer:
        await append_and_check(writer, 50, 51, 9, 52)
        again = writer.reader(positions[9], name="stored")
        assert await take(again, 4) == [50, 51, 9, 52]


@in_virtual_time
async def test_many_losses_are_remembered() -> None:
    world = LogWorld()
    positions = []
    await log_in_a_life_before(world, 100)
    for number in range(100, 140):
        async with world.writer() as writer:
            positions.append(await append_and_check(writer, number))
        world.stream.lose_tail(2)
    async with world.writer() as writer:
        await append(writer, *range(60, 140))
        for position in positions:
            got = await take(writer.reader(position, name="stored"), 80)
            assert got[-80:] == list(range(60, 140))


@in_virtual_time
async def test_a_tail_lost_while_away_moves_stored_positions_to_where_the_loss_began() -> None:
    world = LogWorld()
    stored = await positions_of_a_life_before(world, 10)
    world.stream.lose_tail(4)
    async with world.writer() as writer:
        reader = writer.reader(stored[8], name="stored")
        await append(writer, 9)
        assert await take(reader, 1) == [9]


@in_one_life(check_every_s=1000)
async def test_a_stranger_before_a_loss_is_not_missed_by_who_had_read_what_was_lost(
    world: LogWorld, writer: LogWriter
) -> None:
    reader = writer.reader(None, name="test")
    await append_and_check(writer, 0)
    await append(writer, 1, 2)  # not read back: the reader has them from memory
    await take(reader, 3)
    place = reader.place
    async with ending_run(writer):
        world.stream.lose_tail(1)
        world.stream.append_alien(batch(7, origin="tokyo")[1])
    await append(writer, 2)
    assert [str(b.place.name)[:5] for b in await take_batches(reader, 3)][-2:] == [
        "tokyo",
        "paris",
    ]
    again = writer.reader(place, name="again")
    assert (await take(again, 3))[-2:] == [7, 2]


@in_virtual_time
async def test_who_had_read_what_stands_elsewhere_after_a_loss_goes_back() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        reader = writer.reader(None, name="test")
        await append(writer, *range(4))
        await take(reader, 3)
        await until_checked(writer, 3)
        place = writer.safe_position(reader.place)
        async with ending_run(writer):
            records = [record.data for record in world.stream.records]
            world.stream.lose_tail(3)
            world.stream.skip_offsets(10)
            world.stream.append_alien(records[1], records[3], records[2])
        assert await take(reader, 2) == [3, 2]
    async with world.writer() as writer:
        assert await take(writer.reader(place, name="again"), 2) == [3, 2]


@in_one_life()
async def test_readers_of_a_log_made_anew_begin_at_its_start(
    world: LogWorld, writer: LogWriter
) -> None:
    reader = writer.reader(None, name="test")
    await append(writer, *range(10))
    await take(reader, 10)
    async with ending_run(writer):
        world.stream.create()
    await append(writer, 3, 4)
    assert await take(reader, 2) == [3, 4]


# A new log, which goes on where former logs ended


def snapshot_of_former_names(*numbers: int) -> bytes:
    """Snapshot of a new slot: names of a former log, and no place."""
    names = NameSet()
    for number in numbers:
        names.add(batch_name(number))
    return LogSnapshot(b"", names, [], last_seen={("paris", INCARNATION): 1_000_000}).encode()


@in_virtual_time
async def test_a_new_log_goes_on_behind_the_names_of_a_former_one() -> None:
    world = LogWorld()
    world.memory.data = snapshot_of_former_names(*range(5))
    async with world.writer() as writer:
        assert await append(writer, 4, 5) == [Appended.ALREADY_LOGGED, Appended.LOGGED]
        await until_checked(writer, 5)
    async with world.writer() as writer:
        assert sorted(name.sequence for name in writer.logged) == list(range(6))
        assert await append(writer, 3, 6) == [Appended.ALREADY_LOGGED, Appended.LOGGED]
    assert world.stored == [5, 6]


@in_virtual_time
async def test_former_names_outlast_a_kill_before_the_first_snapshot() -> None:
    world = LogWorld()
    world.memory.data = former = snapshot_of_former_names(*range(5))
    async with world.killed_writer() as writer:
        await append(writer, 5)
    world.memory.data = former
    async with world.writer() as writer:
        assert sorted(name.sequence for name in writer.logged) == list(range(6))
        assert await append(writer, 4, 5) == [Appended.ALREADY_LOGGED] * 2
    assert world.stored == [5]


@in_virtual_time
async def test_a_tail_that_a_new_log_loses_at_once_is_no_former_name() -> None:
    world = LogWorld(settings=LogSettings(check_every_s=30))
    world.memory.data = snapshot_of_former_names(*range(5))
    async with world.writer() as second:
        await append(second, 5, 6)
        async with ending_run(second) as run:
            world.stream.lose_tail(1)
        again = await second.running()
        assert again.log_id != run.log_id
        assert sorted(name.sequence for name in second.logged) == list(range(6))
        assert await append(second, 4, 6) == [Appended.ALREADY_LOGGED, Appended.LOGGED]
    assert world.stored == [5, 6]
