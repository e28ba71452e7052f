"""After a crash: what comes back from egress is recognised, and packed once."""

from __future__ import annotations

import asyncio

import pytest

from relay.batches.format import read_header
from relay.packing.egress_acks import HOLD_S
from relay.packing.packer_record import PackerRecord
from tests.relay.packer_world import PackerWorld, numbered
from tests.virtual_time import VirtualTimeLoop, in_virtual_time, let_pass
from tests.waiting import until


@pytest.mark.parametrize("seed", range(6))
@in_virtual_time
async def test_a_killed_packer_s_successor_packs_nothing_twice(seed: int) -> None:
    world = PackerWorld(seed)

    def publish(life: int, burst: int) -> None:
        world.publish(*numbered(50, 1000 * life + 50 * burst))

    await world.killed_again_and_again(publish)
    await world.pack_all()
    world.assert_exactly_once_in_order()


@in_virtual_time
async def test_what_the_log_had_confirmed_and_nobody_acknowledged_is_recognised() -> None:
    world = PackerWorld()
    world.broker.ack_s = 1000.0
    first = await world.start().ready()
    world.publish(*numbered(1500))
    await first.has_packed(1500)
    await first.kill()
    world.broker.ack_s = 0.001
    second = await world.start().ready()
    world.publish(b"fresh")
    await second.finish()
    world.assert_exactly_once_in_order()
    assert second.packer.metrics.returned == 1500


@pytest.mark.parametrize("what", ["the node", "egress"])
@pytest.mark.parametrize("after_s", [half / 2000 for half in range(40)])
@in_virtual_time
async def test_a_burst_tells_where_log_and_egress_meet_whenever_it_is_cut(
    what: str, after_s: float
) -> None:
    world = PackerWorld()
    process = await world.start().ready()
    world.publish(*numbered(1500))
    await let_pass(after_s)
    if what == "egress":
        world.broker.break_connections()
    else:
        await process.kill()
        process = await world.start().ready()
    await process.finish()
    world.assert_exactly_once_in_order()


@pytest.mark.parametrize("phase", [tenth / 20 for tenth in range(10)])  # which timer is first
@in_virtual_time
async def test_a_process_that_stood_still_acknowledges_nothing_on_what_it_takes_for_its_connection(
    phase: float,
) -> None:
    world = PackerWorld()
    world.broker.ack_s = 5.0  # what is on its way will be lost
    process = await world.start().ready()
    await let_pass(phase)
    world.publish(*numbered(50))
    await process.has_packed(50)
    await let_pass(HOLD_S - 0.1)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.stand_still(25.0)
    await let_pass(0.1)
    world.broker.break_connections()
    world.broker.ack_s = 0.001
    await process.finish()
    world.assert_exactly_once_in_order()
    assert process.packer.metrics.returned == 50
    assert process.packer.metrics.doubtful == 0


@in_virtual_time
async def test_an_append_in_doubt_that_was_stored_is_not_packed_again() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    world.stream.break_after_storing()
    world.publish(*numbered(10))
    await process.finish()
    world.assert_exactly_once_in_order()
    assert process.packer.metrics.incarnations == 2


@in_virtual_time
async def test_an_append_in_doubt_that_was_not_stored_is_packed_again() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    world.publish(*numbered(10))
    await let_pass(0.004)
    world.stream.break_connections()
    await process.finish()
    world.assert_exactly_once_in_order()


@pytest.mark.parametrize("lands", ["before the mark", "before the statement", "much later"])
@in_virtual_time
async def test_a_dead_packer_s_last_bytes_do_no_harm_whenever_they_land(lands: str) -> None:
    world = PackerWorld()
    first = await world.start().ready()
    world.publish(*numbered(5))
    await world.drained()
    world.stream.hold_next_appends()
    world.publish(*numbered(5, 5))
    await let_pass(0.02)
    await first.kill()
    if lands == "before the mark":
        world.stream.release_held()
    second = world.start()
    if lands == "before the statement":
        size = len(world.stream.records)
        await until(lambda: len(world.stream.records) > size, "the mark", 60, every_s=0.001)
        world.stream.release_held()
    await second.ready()
    world.publish(b"last")
    await world.drained()
    late = world.stream.records[-1].offset
    world.stream.release_held()
    await second.stop()
    seen = world.assert_exactly_once_in_order()
    assert seen.void == (0 if lands == "before the mark" else 1)
    for record in world.stream.records:
        header = read_header(record.data)
        if header.name.series.incarnation == seen.headers[0].name.series.incarnation:
            second_says = second.voids.is_void(header)
            assert second_says == (header.incarnation_sequence > 2 and seen.void == 1)
    assert late


@pytest.mark.parametrize("seed", range(8))
@in_virtual_time
async def test_a_packer_that_dies_in_the_middle_of_a_big_message_leaves_no_half(seed: int) -> None:
    world = PackerWorld(seed)
    bodies = [world.chance.randbytes(3_000_000) if n % 2 else b"small %d" % n for n in range(6)]
    process = await world.start().ready()
    world.publish(*bodies)
    await let_pass(world.chance.uniform(0, 0.02))
    await process.kill()
    await world.pack_all()
    world.assert_exactly_once_in_order()


@pytest.mark.parametrize("seed", range(4))
@in_virtual_time
async def test_flows_are_compared_each_for_itself(seed: int) -> None:
    world = PackerWorld(seed, exchanges=("orders", "prices", "idle"))

    def publish(life: int, burst: int) -> None:
        world.publish(*numbered(10, 1000 * life + 10 * burst))
        world.publish(*numbered(3, 1000 * life + 3 * burst), exchange="prices")

    await world.killed_again_and_again(publish, bursts=30, pause_s=0.004)
    await world.pack_all()
    world.assert_exactly_once_in_order()
    world.assert_exactly_once_in_order("prices")


@in_virtual_time
async def test_a_successor_reads_back_a_minute_not_a_day() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    for n in range(600):
        world.publish(*numbered(2, 2 * n))
        await let_pass(1.0)
    await process.kill()
    assert world.ledger.written is not None
    record = PackerRecord.decode(world.ledger.written)
    end = world.stream.next_offset
    assert end - 60 < record.read_from < end - 25
    await world.pack_all()
    world.assert_exactly_once_in_order()


@pytest.mark.parametrize("lives", [1, 2])
@in_virtual_time
async def test_what_was_packed_before_the_power_went_gets_its_rows_from_the_next_one(
    lives: int,
) -> None:
    world = PackerWorld()
    for life in range(lives):
        process = await world.start().ready()
        world.publish(*numbered(20, 20 * life))
        await world.drained()
        await process.lose_power()
    world.publish(b"fresh")
    await world.pack_all()
    world.assert_exactly_once_in_order()


@in_virtual_time
async def test_nothing_is_packed_before_the_first_record_is_on_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = PackerWorld()
    disk = asyncio.Event()

    async def slowly() -> None:
        await disk.wait()

    monkeypatch.setattr(world.ledger, "synced", slowly)
    world.publish(*numbered(5))
    process = await world.start().ready()
    await let_pass(60.0)
    assert process.packer.metrics.messages == 0
    disk.set()
    await process.finish()
    world.assert_exactly_once_in_order()
