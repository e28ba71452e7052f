"""Up to where a site has packed and settled, as its ledger says it."""

from __future__ import annotations

import pytest

from relay.delivery.context import POSITION
from relay.ledger.columns import parquet_values
from relay.ledger.rows import Event, LedgerRow, Stage, decode_row
from relay.log.run import LogSettings
from relay.node.housekeeping import ThroughRows
from relay.node.start import DelivererMark
from relay.packing.packer_record import PackedThrough
from tests.relay.deliverer_world import NOW_MS, Life, World, entry
from tests.relay.packer_world import PackerWorld, numbered
from tests.virtual_time import in_virtual_time, let_pass

I1, I2 = b"incarn_1", b"incarn_2"


def rows_of(life: Life, packed: PackedThrough | None = None) -> ThroughRows:
    return ThroughRows(
        "tokyo",
        life.state,
        life.writer,
        life.context.settlement,
        lambda: packed,
        lambda: NOW_MS,
    )


def written(life: Life, stage: Stage = Stage.DELIVERED) -> list[LedgerRow]:
    rows = [decode_row(data) for _, data in life.state.rows(stage)]
    return [row for row in rows if row.event is Event.THROUGH]


def through_rows(life: Life) -> list[tuple[str, str, bytes, int]]:
    return [
        (row.origin, row.exchange, row.incarnation, row.incarnation_sequence)
        for row in written(life)
    ]


@in_virtual_time
async def test_each_flow_that_has_moved_has_a_row_and_the_sites_own_too() -> None:
    world = World()
    async with world.running() as life:
        rows = rows_of(life)
        await rows.write(1)
        assert through_rows(life) == []
        await life.log(
            world.batch([entry(1)]),
            world.batch([entry(2)], exchange="prices"),
            world.batch([entry(3)], to=("sydney",)),
        )
        await life.settled(await life.log(world.batch([entry(4)], origin="tokyo", incarnation=I2)))
        await rows.write(1)
        first = [
            ("paris", "orders", I1, 2),  # not for this site, and passed
            ("paris", "prices", I1, 1),
            ("tokyo", "orders", I2, 0),
        ]
        assert sorted(through_rows(life)) == first
        await rows.write(1)
        assert len(through_rows(life)) == 3
        await life.settled(await life.log(world.batch([entry(5)])))
        await rows.write(1)
        assert through_rows(life)[3:] == [("paris", "orders", I1, 3)]


@in_virtual_time
async def test_a_flow_that_stands_is_not_said_to_be_further_and_holds_up_no_other() -> None:
    world = World()
    async with world.running() as life:
        await life.log(world.batch([entry(1)]))
        await life.until(lambda: len(world.delivered()) == 1)
        life.context.hold("the site is paused")
        await life.log(world.batch([entry(2)]), world.batch([entry(3)]))
        await life.log(world.batch([entry("p")], origin="tokyo", incarnation=I2))
        await life.until(lambda: life.counters.own == 1)
        await rows_of(life).write(1)
        assert sorted(through_rows(life)) == [
            ("paris", "orders", I1, 0),
            ("tokyo", "orders", I2, 0),
        ]
        life.context.hold("")


@in_virtual_time
async def test_what_the_log_does_not_show_in_time_is_left_to_the_next_round() -> None:
    world = World(log_settings=LogSettings(check_every_s=3600))
    async with world.running() as life:
        rows = rows_of(life)
        await life.settled(await life.log(world.batch([entry(1)])))
        await rows.write(1)
        assert len(through_rows(life)) == 1, "the log is asked, whenever it would have looked"
        await life.settled(await life.log(world.batch([entry(2)])))
        await rows.write(0)
        assert len(through_rows(life)) == 1
        await rows.write(1)
        assert [number for *_, number in through_rows(life)] == [0, 1]


@in_virtual_time
async def test_the_mark_of_a_quiet_site_is_where_its_log_was_read_back_to_since() -> None:
    world = World(log_settings=LogSettings(check_every_s=3600))
    async with world.running() as life:
        mark = DelivererMark(life.state, life.writer, life.context.reached, None)
        await life.settled(await life.log(world.batch([entry(1)])))
        last = await life.log(world.batch([entry(2)]))
        await life.settled(last)
        await life.writer.check_now()
        await mark.store(1)
        kept = life.state.load().positions[POSITION]
        assert kept.name == last
        assert await (await life.writer.connected()).load_mark() == kept.offset


@in_virtual_time
async def test_nothing_is_said_in_a_round_in_which_the_readers_were_sent_back() -> None:
    world = World()
    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry(1)])))
        rows = rows_of(life)
        settlement = life.context.settlement
        check_now = life.writer.check_now

        async def sent_back() -> None:
            await check_now()
            settlement.sent_back(None, life.writer.is_after)

        life.writer.check_now = sent_back  # type: ignore[method-assign]
        await rows.write(1)
        assert through_rows(life) == []


@in_virtual_time
async def test_after_a_restart_it_begins_with_what_is_met_then() -> None:
    world = World()
    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry(1)])))
        await rows_of(life).write(1)
    async with world.running() as life:
        rows = rows_of(life)
        await rows.write(1)
        assert [number for *_, number in through_rows(life)] == [0]
        await life.settled(await life.log(world.batch([entry(2)])))
        await rows.write(1)
        assert [number for *_, number in through_rows(life)] == [0, 1]


@in_virtual_time
async def test_the_packers_word_is_a_row_of_its_own_stage() -> None:
    world = World()
    async with world.running() as life:
        await rows_of(life, PackedThrough(I2, 7, NOW_MS - 5)).write(1)
        (row,) = written(life, Stage.PACKED)
    values = parquet_values("tokyo", "5e", 0, row, None)
    assert (values["event"], values["origin"], values["incarnation"]) == ("through", "tokyo", I2)
    assert (values["incarnation_sequence"], values["through"]) == (7, NOW_MS - 5)
    assert values["kind"] is values["exchange"] is values["sequence"] is None


@in_virtual_time
async def test_a_packer_knows_up_to_where_and_when_all_has_its_rows() -> None:
    world = PackerWorld()
    process = world.start()
    assert process.packer.through() is None
    await process.ready()
    began = process.packer.through()
    assert began is not None
    assert (began.sequence, began.before_ms) == (1, world.now_ms())
    await let_pass(3)
    world.publish(*numbered(300))
    await process.has_packed(300)
    await world.drained()
    at_rest = process.packer.through()
    assert at_rest is not None
    assert at_rest.incarnation == began.incarnation
    assert at_rest.sequence == world.logged().headers[-1].incarnation_sequence
    assert at_rest.before_ms == world.now_ms()


@in_virtual_time
async def test_what_is_on_its_way_into_the_log_is_not_said_to_have_its_rows() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    await let_pass(3)
    world.stream.hold_next_appends()
    taken_ms = world.now_ms()
    world.publish(*numbered(3))
    await let_pass(2)
    waiting = process.packer.through()
    assert waiting is not None
    assert taken_ms <= waiting.before_ms <= taken_ms + 100
    assert waiting.sequence == 1
    world.stream.break_connections()
    await let_pass(0.01)
    broken = process.packer.through()
    assert broken is not None
    assert broken.before_ms == -1, "it may be in the log, and its row comes later"
    await process.finish()
    ended = process.packer.through()
    assert ended is not None
    assert ended.before_ms == world.now_ms()
    assert ended.sequence == world.ledger.packed[-1].header.incarnation_sequence


@pytest.mark.parametrize("seed", range(5))
def test_a_packer_that_is_killed_never_said_more_than_its_rows(seed: int) -> None:
    @in_virtual_time
    async def trial() -> None:
        world = PackerWorld(seed)
        for _ in range(4):
            process = await world.start().ready()
            for burst in range(10):
                world.publish(*numbered(20, 20 * burst))
                await let_pass(world.chance.uniform(0, 0.006))
                said = process.packer.through()
                assert said is not None
                packed = {p.header.name for p in world.ledger.packed}
                known = {
                    p.header.incarnation_sequence
                    for p in world.ledger.packed
                    if p.header.name.series.incarnation == said.incarnation
                }
                assert known >= set(range(2, said.sequence + 1))
                if said.before_ms >= 0:
                    late = [
                        h
                        for h in world.logged().headers
                        if h.entry_count
                        and h.first_published_ms < said.before_ms
                        and h.name not in packed
                    ]
                    assert not late
            await process.kill()

    trial()
