"""Queues, locks, brokers, disks and logs in trouble: said, waited for, and gone on after."""

from __future__ import annotations

import asyncio

import pytest

from relay.log.site_log import UNCONFIRMED_S
from relay.packing.memory_egress import MemoryEgress, Returns
from relay.packing.packer_metrics import PackerState
from tests.relay.packer_world import LOCK, PackerWorld, numbered, with_settings
from tests.virtual_time import in_virtual_time, let_pass
from tests.waiting import until


@in_virtual_time
async def test_a_missing_queue_is_said_and_taken_up_when_it_is_there() -> None:
    world = PackerWorld(exchanges=("orders", "prices"))
    world.broker.delete("egress.prices")
    process = await world.start().ready()
    world.publish(*numbered(10))
    await world.drained()
    assert "egress.prices" in process.packer.status.exchanges["prices"]
    assert process.packer.status.state is PackerState.RUNNING
    world.broker.declare("egress.prices")
    world.publish(*numbered(10), exchange="prices")
    await world.drained("prices")
    assert process.packer.status.exchanges == {}
    await process.stop()
    world.assert_exactly_once_in_order("prices")


@in_virtual_time
async def test_a_deleted_queue_is_said_and_the_others_go_on() -> None:
    world = PackerWorld(exchanges=("orders", "prices"))
    process = await world.start().ready()
    world.publish(*numbered(10))
    await world.drained()
    world.broker.delete("egress.prices")
    world.publish(*numbered(10, 10))
    await world.drained()
    await until(lambda: "prices" in process.packer.status.exchanges, "the queue is missed", 60)
    await process.stop()
    world.assert_exactly_once_in_order()


@in_virtual_time
async def test_a_second_node_waits_for_the_lock_and_says_whose_it_is() -> None:
    world = PackerWorld()
    world.ledger_is_shared = True
    first = await world.start().ready()
    second = world.start()
    await until(lambda: second.packer.status.state is PackerState.DOWN, "the second is told", 60)
    assert "another node" in second.packer.status.reason
    world.publish(*numbered(100))
    await first.finish()
    await second.ready()
    world.publish(*numbered(100, 100))
    await second.finish()
    world.assert_exactly_once_in_order()


@pytest.mark.parametrize("turns", range(8))
@in_virtual_time
async def test_a_packer_that_is_cancelled_amid_its_end_gives_the_lock_up(turns: int) -> None:
    world = PackerWorld()
    world.ledger_is_shared = True
    process = await world.start().ready()
    process.packer.superseded("another's batch")
    for _ in range(turns):
        await asyncio.sleep(0)
    await process.cancel()
    await (await world.start().ready()).stop()


@in_virtual_time
async def test_no_message_is_consumed_before_the_former_holder_s_channels_are_gone() -> None:
    world = PackerWorld()
    gone = False

    async def former_gone() -> bool:
        return gone

    world.former_gone = former_gone  # type: ignore[method-assign]
    world.publish(*numbered(10))
    process = world.start()
    await let_pass(20)
    assert world.stream.records == []
    gone = True
    await process.ready()
    await process.finish()
    world.assert_exactly_once_in_order()


@in_virtual_time
async def test_a_broker_that_is_away_is_tried_again_and_said() -> None:
    world = PackerWorld()
    world.broker.reachable = False
    process = world.start()
    await until(lambda: process.packer.status.state is PackerState.DOWN, "it is said", 60)
    await let_pass(100)
    assert process.packer.status.state is PackerState.DOWN
    assert "unreachable" in process.packer.status.reason
    assert process.packer.metrics.incarnations < 20
    world.broker.reachable = True
    world.publish(*numbered(10))
    await process.finish()
    world.assert_exactly_once_in_order()


@in_virtual_time
async def test_a_node_without_its_log_keeps_the_lock_from_nobody() -> None:
    world = PackerWorld()
    world.stream.reachable = False
    world.publish(*numbered(10))
    process = world.start()
    await let_pass(20)
    other = await world.broker.connect(LOCK)
    await other.take_lock()
    await other.close()
    world.stream.reachable = True
    await process.ready()
    await process.finish()
    world.assert_exactly_once_in_order()


@in_virtual_time
async def test_a_connection_that_is_long_in_coming_is_no_process_that_stood_still() -> None:
    world = PackerWorld()
    connect = world.broker.connect

    async def connect_slowly(lock: str) -> MemoryEgress:
        await let_pass(world.settings.silence_s + 5)  # past broker nodes that do not answer
        return await connect(lock)

    world.broker.connect = connect_slowly  # type: ignore[method-assign]
    world.publish(*numbered(10))
    process = await world.start().ready()
    await process.finish()
    assert process.packer.metrics.incarnations == 1
    world.assert_exactly_once_in_order()


@in_virtual_time
async def test_a_record_that_cannot_be_written_stops_acknowledgements_not_the_node() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    record = world.ledger.record

    def full(packed: object, written: bytes) -> None:
        raise OSError("no space left")

    world.ledger.record = full  # type: ignore[method-assign]
    world.publish(*numbered(10))
    await until(lambda: process.packer.status.state is PackerState.DOWN, "the packer is down", 60)
    assert "no space left" in process.packer.status.reason
    assert world.broker.depth("egress.orders") == 10
    world.ledger.record = record  # type: ignore[method-assign]
    await process.finish()
    world.assert_exactly_once_in_order()


@in_virtual_time
async def test_a_log_that_takes_nothing_stops_the_reading_not_the_memory() -> None:
    world = PackerWorld(settings=with_settings(in_hand_bytes=1_000_000))
    process = await world.start().ready()
    world.stream.confirm_s = 5.0
    world.publish(*numbered(200, size=50_000))
    most = 0
    for _ in range(200):
        await let_pass(0.01)
        most = max(most, process.packer.metrics.in_hand_bytes)
    # One read more than the limit: here 256 messages a read.
    assert most <= 1_000_000 + 256 * 51_000
    world.stream.confirm_s = 0.002
    await process.finish()
    world.assert_exactly_once_in_order()


@in_virtual_time
async def test_a_log_that_confirms_nothing_is_connected_to_anew_at_a_cluster_alone() -> None:
    for returns, connections in ((Returns.FIFO, 1), (Returns.SHUFFLED, 2)):
        world = PackerWorld(returns=returns)
        world.stream.hold_next_appends()
        world.publish(*numbered(10))
        process = world.start()
        await let_pass(UNCONFIRMED_S + 5)
        assert process.log.counts.connections == connections
        world.stream.break_connections()
        await process.ready()
        await process.finish()
        world.assert_exactly_once_in_order()


@pytest.mark.parametrize(
    ("waits_s", "reason"),
    [(1.0, ""), (UNCONFIRMED_S + 1, "LogClosed: nothing is confirmed for 11 s")],
)
@in_virtual_time
async def test_a_log_that_confirms_nothing_is_given_up_with_a_clusters_egress(
    waits_s: float, reason: str
) -> None:
    world = PackerWorld(returns=Returns.SHUFFLED)
    process = await world.start().ready()
    world.stream.hold_next_appends()
    world.publish(*numbered(10))
    await let_pass(waits_s)
    world.broker.break_connections("its lease could not be proven")
    await until(lambda: process.packer.status.state is PackerState.DOWN, "it ends", 60)
    assert process.log.state[1] == reason
    world.stream.break_connections()
    world.stream.release_held()
    await until(lambda: process.packer.status.state is PackerState.RUNNING, "it goes on", 60)
    await process.finish()
    world.assert_nothing_lost_nor_repeated()


@in_virtual_time
async def test_a_packer_that_another_superseded_takes_the_lock_anew() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    world.publish(*numbered(10))
    await world.drained()
    process.packer.superseded("somebody")
    await until(lambda: process.packer.metrics.incarnations == 2, "a second incarnation", 60)
    world.publish(*numbered(10, 10))
    await process.finish()
    world.assert_exactly_once_in_order()
