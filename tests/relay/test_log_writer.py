"""The node's writer of its log, over the log in memory and in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from relay.batch import BatchName
from relay.log_reader import LogGap, PlaceLost
from relay.log_writer import Appended, LogSettings, LogState
from relay.site_log import LogClosed, LogRefused
from tests.log_batches import batch, batch_name
from tests.log_world import (
    LogWorld,
    append,
    append_through,
    in_virtual_time,
    mark,
    take,
    take_batches,
    until_checked,
)

# Appending


@in_virtual_time
async def test_what_is_confirmed_is_logged_and_in_the_order_of_the_calls() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        assert await append(writer, *range(10)) == [Appended.LOGGED] * 10
        assert world.stored == list(range(10))
        assert all(batch_name(n) in writer.logged for n in range(10))


@in_virtual_time
async def test_all_of_one_turn_of_the_loop_is_one_append() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        await append(writer, *range(10))
        assert len({id(chunk) for chunk in world.stream._chunks}) == 1


@in_virtual_time
async def test_a_batch_is_appended_once_whoever_brings_it() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        assert await append(writer, 1) == [Appended.LOGGED]
        assert await append(writer, 1) == [Appended.ALREADY_LOGGED]
        assert world.stored == [1]


@in_virtual_time
async def test_a_second_copy_in_flight_waits_for_the_first() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        first = writer.append_nowait(*batch(1))
        await asyncio.sleep(0)
        second = writer.append_nowait(*batch(1))
        assert not second.done()
        assert await first is Appended.LOGGED
        assert await second is Appended.ALREADY_LOGGED
        assert world.stored == [1]


@in_virtual_time
async def test_a_second_copy_fails_with_the_first_and_neither_counts_as_logged() -> None:
    world = LogWorld()
    async with world.writer() as writer:
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


@in_virtual_time
async def test_a_cancelled_append_still_happens() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        waiting = asyncio.ensure_future(writer.append(*batch(1)))
        await asyncio.sleep(0)
        waiting.cancel()
        assert await append(writer, 1) == [Appended.ALREADY_LOGGED]


@in_virtual_time
async def test_what_was_stored_and_not_confirmed_is_logged_after_reading_back() -> None:
    world = LogWorld()
    async with world.writer() as writer:
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


@in_virtual_time
async def test_an_append_without_a_connection_fails_at_once() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        world.stream.reachable = False
        world.stream.break_connections()
        await asyncio.sleep(0.01)
        with pytest.raises(LogClosed, match="not connected"):
            await append(writer, 1)
        await asyncio.sleep(100)
        world.stream.reachable = True
        await append_through(writer, 1)
        assert world.stored == [1]


@in_virtual_time
async def test_a_batch_that_is_too_large_is_refused_and_others_go_on() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        header, _ = batch(1)
        with pytest.raises(LogRefused, match="bytes"):
            await writer.append(header, bytes(world.stream.max_record_bytes + 1))
        assert await append(writer, 1) == [Appended.LOGGED]


# Connections


@in_virtual_time
async def test_a_missing_log_is_waited_for() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        await append(writer, *range(3))
        world.stream.delete()
        await asyncio.sleep(60)
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
        await asyncio.sleep(1)
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
    await asyncio.sleep(50)
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


# Another life


@in_virtual_time
async def test_a_restart_knows_what_was_logged_without_reading_the_whole_log() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        await append(writer, *range(1000))
        await until_checked(writer, 999)
        log_id = (await writer.running()).log_id
    world.stream.truncate_head(500)  # what is known is not read again
    async with world.writer() as writer:
        assert len(writer.logged) == 1000
        assert (await writer.running()).log_id == log_id
        assert writer.counts.rebuilds == 0


@in_virtual_time
async def test_a_killed_node_finds_what_it_appended_after_its_last_snapshot() -> None:
    world = LogWorld()
    async with world.killed_writer() as writer:
        await append(writer, *range(5))
        await until_checked(writer, 4)
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


@in_virtual_time
async def test_a_snapshot_is_saved_about_once_a_second_and_only_when_something_changed() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        for number in range(1000):
            await append(writer, number)
            await asyncio.sleep(0.01)
        busy = world.memory.saves
        assert 5 <= busy <= 15
        await asyncio.sleep(1000)
        assert world.memory.saves <= busy + 2


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


# A log that lost its tail


@in_virtual_time
async def test_a_tail_lost_under_a_living_node_leaves_the_logged_set() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        await append(writer, *range(10))
        await until_checked(writer, 9)
        run = await writer.running()
        world.stream.lose_tail(4)
        await run.ended
        again = await writer.running()
        assert again.log_id != run.log_id
        assert sorted(name.sequence for name in writer.logged) == list(range(6))
        assert await append(writer, 6) == [Appended.LOGGED]


@in_virtual_time
async def test_a_tail_lost_before_it_was_read_back_leaves_the_logged_set() -> None:
    world = LogWorld(settings=LogSettings(check_every_s=1000))
    async with world.writer() as writer:
        await append(writer, *range(5))
        await asyncio.sleep(5)
        await append(writer, *range(5, 10))
        run = await writer.running()
        world.stream.lose_tail(3)
        await run.ended
        again = await writer.running()
        assert again.log_id != run.log_id
        assert len(writer.logged) == 7


@in_virtual_time
async def test_a_tail_lost_while_the_node_was_away_leaves_the_logged_set() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        await append(writer, *range(3000))
        await until_checked(writer, 2999)
        log_id = (await writer.running()).log_id
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
        await append(writer, *range(5))
        await until_checked(writer, 4)
        await append(writer, 5, 6)
        assert batch_name(6) in writer.logged
    world.stream.lose_tail(2)
    async with world.writer() as writer:
        assert batch_name(5) not in writer.logged
        assert await append(writer, 6) == [Appended.LOGGED]


@in_virtual_time
async def test_more_lost_than_is_remembered_is_a_log_made_anew() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        await append(writer, *range(12_000))
        await until_checked(writer, 11_999)
    world.stream.lose_tail(11_900)
    async with world.writer() as writer:
        assert len(writer.logged) == 100
        assert writer.counts.rebuilds == 1


@in_virtual_time
async def test_offsets_used_again_after_a_loss_are_not_taken_for_what_stood_there() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        await append(writer, *range(10))
        await until_checked(writer, 9)
    world.stream.lose_tail(5)
    world.stream.append_alien(*(batch(n, origin="tokyo")[1] for n in range(7)))
    async with world.writer() as writer:
        assert sorted(str(n) for n in writer.logged) == sorted(
            [str(batch_name(n)) for n in range(5)]
            + [str(batch_name(n, origin="tokyo")) for n in range(7)]
        )


@in_virtual_time
async def test_a_log_made_anew_under_a_living_node_is_read_whole() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        await append(writer, *range(10))
        run = await writer.running()
        world.stream.create()
        world.stream.append_alien(batch(0, origin="tokyo")[1])
        await run.ended
        again = await writer.running()
        assert again.log_id != run.log_id
        assert list(writer.logged) == [batch_name(0, origin="tokyo")]
        assert await append(writer, 9) == [Appended.LOGGED]


# Readers


@in_virtual_time
async def test_a_reader_that_has_caught_up_reads_from_memory() -> None:
    world = LogWorld()
    async with world.writer() as writer:
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
    async with world.writer() as writer:
        first = writer.reader(None, name="first")
        await append(writer, *range(50))
        places = [b.place for b in await take_batches(first, 50)]
        await until_checked(writer, 49)
        stored = [writer.safe_position(p) for p in places]
    async with world.writer() as writer:
        for number in (0, 17, 48):
            reader = writer.reader(stored[number], name="again")
            assert await take(reader, 1) == [number + 1]
        at_end = writer.reader(stored[49], name="at the end")
        await append(writer, 50)
        assert await take(at_end, 1) == [50]
        assert at_end.is_hot


@in_virtual_time
async def test_a_reader_that_falls_out_of_memory_catches_up_from_the_stream() -> None:
    world = LogWorld(settings=LogSettings(hot_bytes=20_000))
    async with world.writer() as writer:
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


@in_virtual_time
async def test_a_reader_changes_over_while_batches_keep_coming() -> None:
    world = LogWorld(settings=LogSettings(hot_bytes=100_000))
    async with world.writer() as writer:
        await append(writer, *range(500))

        async def keep_appending() -> None:
            for number in range(500, 2000):
                await append(writer, number)

        appending = asyncio.ensure_future(keep_appending())
        reader = writer.reader(None, name="test")
        assert await take(reader, 2000) == list(range(2000))
        await appending


@in_virtual_time
async def test_a_cancelled_reader_loses_nothing() -> None:
    world = LogWorld(settings=LogSettings(hot_bytes=20_000))
    async with world.writer() as writer:
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
                await asyncio.sleep(0.0001)
        assert got == list(range(400))
        await appending


@in_virtual_time
async def test_readers_go_on_over_a_new_connection() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        hot, cold = writer.reader(None, name="hot"), writer.reader(None, name="cold")
        await append(writer, *range(10))
        assert await take(hot, 10) == list(range(10))
        world.stream.break_after_storing()
        with pytest.raises(LogClosed):
            await append(writer, 10)
        await append_through(writer, 10, 11)
        assert await take(hot, 2) == [10, 11]
        assert await take(cold, 12) == list(range(12))


@in_virtual_time
async def test_next_batches_takes_up_to_about_so_many_bytes() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        size = len(batch(0)[1])
        await append(writer, *range(10))
        for reader in (writer.reader(None, name="hot"), writer.reader(None, name="again")):
            got = await reader.next_batches(max_bytes=3 * size)
            assert len(got) == 3
            assert len(await reader.next_batches(max_bytes=1)) == 1
            assert len(await reader.next_batches()) == 6


@in_virtual_time
async def test_a_rewound_reader_gives_again_what_follows() -> None:
    world = LogWorld(settings=LogSettings(hot_bytes=10_000))
    async with world.writer() as writer:
        reader = writer.reader(None, name="test")
        await append(writer, *range(30))
        got = await take_batches(reader, 30)
        waiting = asyncio.ensure_future(reader.next_batches(max_bytes=1))
        await asyncio.sleep(1)
        reader.rewind(got[27].place)
        assert [b.header.name.sequence for b in await waiting] == [28]
        reader.rewind(got[3].place)
        assert await take(reader, 26) == list(range(4, 30))
        reader.rewind(None)
        assert await take(reader, 1) == [0]


@in_virtual_time
async def test_a_reader_waiting_on_the_stream_can_be_rewound() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        await append(writer, *range(5))
        await until_checked(writer, 4)
        world.stream.append_alien(b"not a batch")
        writer.tail.restart(None, anchored=False)  # as after a stranger's batch
        reader = writer.reader(None, name="test")
        got = await take_batches(reader, 5)
        waiting = asyncio.ensure_future(take(reader, 2))
        await asyncio.sleep(10)
        assert not waiting.done()
        reader.rewind(got[2].place)
        assert await waiting == [3, 4]


@in_virtual_time
async def test_a_place_that_retention_ate_is_a_gap() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        reader = writer.reader(None, name="first")
        await append(writer, *range(10))
        places = [b.place for b in await take_batches(reader, 10)]
        await until_checked(writer, 9)
        stored = [writer.safe_position(p) for p in places]
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
    async with world.writer() as writer:
        reader = writer.reader(None, name="first")
        await append(writer, *range(10))
        places = [b.place for b in await take_batches(reader, 10)]
        await until_checked(writer, 9)
        stored = [writer.safe_position(p) for p in places]
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
async def test_a_place_that_the_log_never_had_is_lost_and_not_a_gap() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        await append(writer, *range(10))
        await until_checked(writer, 9)
        stored = writer.checked
        assert stored is not None
    async with world.writer() as writer:
        strange = stored._replace(name=BatchName(stored.name.series, 77))
        for place in (strange, strange._replace(offset=3), strange._replace(offset=500)):
            with pytest.raises(PlaceLost) as lost:
                await writer.reader(place, name="lost").next_batches()
            assert not isinstance(lost.value, LogGap)


@in_virtual_time
async def test_a_reader_on_a_lost_name_goes_on_where_the_loss_began() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        reader = writer.reader(None, name="test")
        behind = writer.reader(None, name="behind")
        await append(writer, *range(10))
        await take(reader, 10)
        await take(behind, 3)
        await until_checked(writer, 9)
        run = await writer.running()
        world.stream.lose_tail(4)
        await run.ended
        await writer.running()
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
            await append(writer, 50, 51, 9, 52)
            await asyncio.sleep(5)
            again = writer.reader(position, name="stored")
            assert await take(again, 4) == [50, 51, 9, 52]
            before_the_loss = writer.safe_position(done)
            assert before_the_loss is not None
            assert before_the_loss.name == batch_name(5)
            now = writer.safe_position(again.place)
            assert now is not None
            assert now.name == batch_name(52)


@in_virtual_time
async def test_many_losses_are_remembered() -> None:
    world = LogWorld()
    positions = []
    async with world.writer() as writer:
        await append(writer, *range(100))
        await until_checked(writer, 99)
    for number in range(100, 140):
        async with world.writer() as writer:
            await append(writer, number)
            positions.append(await until_checked(writer, number))
        world.stream.lose_tail(2)
    async with world.writer() as writer:
        await append(writer, *range(60, 140))
        for position in positions:
            got = await take(writer.reader(position, name="stored"), 80)
            assert got[-80:] == list(range(60, 140))


@in_virtual_time
async def test_a_tail_lost_while_away_moves_stored_positions_to_where_the_loss_began() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        reader = writer.reader(None, name="test")
        await append(writer, *range(10))
        await take(reader, 9)
        await until_checked(writer, 9)
        position = writer.safe_position(reader.place)
    world.stream.lose_tail(4)
    async with world.writer() as writer:
        reader = writer.reader(position, name="stored")
        await append(writer, 9)
        assert await take(reader, 1) == [9]


@in_virtual_time
async def test_a_stranger_before_a_loss_is_not_missed_by_who_had_read_what_was_lost() -> None:
    world = LogWorld(settings=LogSettings(check_every_s=1000))
    async with world.writer() as writer:
        reader = writer.reader(None, name="test")
        await append(writer, 0)
        await asyncio.sleep(5)
        await append(writer, 1, 2)  # not read back: the reader has them from memory
        await take(reader, 3)
        place = reader.place
        run = await writer.running()
        world.stream.lose_tail(1)
        world.stream.append_alien(batch(7, origin="tokyo")[1])
        await run.ended
        await writer.running()
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
        run = await writer.running()
        records = [record.data for record in world.stream.records]
        world.stream.lose_tail(3)
        world.stream.skip_offsets(10)
        world.stream.append_alien(records[1], records[3], records[2])
        await run.ended
        await writer.running()
        assert await take(reader, 2) == [3, 2]
    async with world.writer() as writer:
        assert await take(writer.reader(place, name="again"), 2) == [3, 2]


@in_virtual_time
async def test_readers_of_a_log_made_anew_begin_at_its_start() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        reader = writer.reader(None, name="test")
        await append(writer, *range(10))
        await take(reader, 10)
        run = await writer.running()
        world.stream.create()
        await run.ended
        await writer.running()
        await append(writer, 3, 4)
        assert await take(reader, 2) == [3, 4]


# What somebody else writes


@in_virtual_time
async def test_a_strangers_batch_is_logged_and_read_by_all_while_the_node_is_idle() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        reader = writer.reader(None, name="test")
        await append(writer, 0, 1, 2)
        assert await take(reader, 3) == [0, 1, 2]
        await until_checked(writer, 2)
        world.stream.append_alien(batch(7)[1])
        assert await take(reader, 1) == [7]
        assert batch_name(7) in writer.logged
        assert writer.counts.aliens == 1


@in_virtual_time
async def test_a_strangers_batch_between_ours_sends_the_readers_back() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        reader = writer.reader(None, name="test")
        await append(writer, 0, 1)
        await take(reader, 2)
        await until_checked(writer, 1)
        await append(writer, 2)
        world.stream.append_alien(batch(77)[1])
        await append(writer, 3)
        first = await take(reader, 2)
        assert first == [2, 3]
        position = writer.safe_position(reader.place)
        assert position is not None
        assert position.name == batch_name(1)
        again: list[int] = []
        while 77 not in again or 3 not in again:
            again += await take(reader, 1)
        assert again[-3:] == [2, 77, 3] or again[-2:] == [77, 3]
        assert writer.counts.readers_sent_back == 1


@in_virtual_time
async def test_what_a_dead_connection_still_carried_lands_beside_its_successors() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        reader = writer.reader(None, name="test")
        await append(writer, 0)
        world.stream.hold_next_appends()
        stuck = [writer.append_nowait(*batch(n)) for n in (1, 2, 3)]
        await asyncio.sleep(0.01)
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
async def test_a_stored_position_never_passes_what_was_read_back() -> None:
    world = LogWorld(settings=LogSettings(check_every_s=30))
    async with world.writer() as writer:
        reader = writer.reader(None, name="test")
        assert writer.safe_position(reader.place) is None
        await append(writer, 0)
        await take(reader, 1)
        await until_checked(writer, 0)
        await append(writer, *range(1, 20))
        await take(reader, 19)
        assert writer.safe_position(reader.place) == writer.checked
        assert writer.checked is not None
        assert writer.checked.name == batch_name(0)
        await until_checked(writer, 19)
        position = writer.safe_position(reader.place)
        assert position is not None
        assert position.name == batch_name(19)
        assert position.offset == 19


@in_virtual_time
async def test_many_names_to_check_are_not_left_for_a_second() -> None:
    world = LogWorld(settings=LogSettings(check_every_s=600, check_after_names=50))
    async with world.writer() as writer:
        await append(writer, 0)
        await asyncio.sleep(1)
        await append(writer, *range(1, 60))
        await asyncio.sleep(1)
        assert writer.checked is not None
        assert writer.checked.name == batch_name(59)


@in_virtual_time
async def test_a_confirmed_batch_that_cannot_be_read_back_is_not_believed() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        await append(writer, 0)
        await until_checked(writer, 0)
        run = await writer.running()
        await append(writer, 1)
        await asyncio.sleep(0)
        # As if the broker had lost it without dropping the connection.
        world.stream._chunks.pop()
        await run.ended
        await writer.running()
        assert batch_name(1) not in writer.logged


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


@in_virtual_time
async def test_somebody_elses_mark_after_ours_says_that_we_are_superseded() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        await writer.append(*mark(0))
        await asyncio.sleep(5)
        theirs, data = mark(0, incarnation=b"theirs--")
        world.stream.append_alien(data)
        await asyncio.sleep(5)
        assert world.superseded == [theirs]


@in_virtual_time
async def test_marks_before_ours_and_our_own_earlier_ones_supersede_nobody() -> None:
    world = LogWorld()
    world.stream.append_alien(mark(0, incarnation=b"before--")[1])
    async with world.writer() as writer:
        await writer.append(*mark(0, incarnation=b"ours-1--"))
        await writer.append(*mark(0, incarnation=b"ours-2--"))
        await asyncio.sleep(5)
        world.stream.append_alien(mark(0, incarnation=b"ours-1--")[1])
        other_site, data = batch(0, origin="tokyo", incarnation=b"tokyo---")
        world.stream.append_alien(data)
        await asyncio.sleep(5)
        assert other_site.name in writer.logged
        assert world.superseded == []


@in_virtual_time
async def test_a_mark_that_came_while_the_connection_was_lost_is_noticed() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        await writer.append(*mark(0))
        await asyncio.sleep(5)
        run = await writer.running()
        world.stream.break_connections()
        theirs, data = mark(0, incarnation=b"theirs--")
        world.stream.append_alien(data)
        await run.ended
        await writer.running()
        assert world.superseded == [theirs]


# Metrics, and reading for recovery


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
    async with world.writer() as writer:
        await append(writer, *range(100))
        await until_checked(writer, 99)
    world.stream.truncate_head(90)
    async with world.writer() as writer:
        assert writer.lag(None).messages == 20
        world.stream.create()
        await asyncio.sleep(5)
        await append(writer, 200, 201)
        assert writer.lag(None).messages == 4


@in_virtual_time
async def test_reading_to_the_end_stops_there() -> None:
    world = LogWorld()
    async with world.writer() as writer:
        assert [b async for b in writer.read_to_end(0)] == []
        await append(writer, *range(10))
        await writer.append(*mark(10))
        got = [b async for batches in writer.read_to_end(4) for b in batches]
        assert [b.header.name.sequence for b in got] == list(range(4, 11))
        assert [b.place.offset for b in got] == list(range(4, 11))
        assert [b async for b in writer.read_to_end(50)] == []
