"""Messages that a broker has destroyed, and what is left of them elsewhere."""

from __future__ import annotations

import random
from pathlib import Path

from relay.batches.format import read_header
from relay.bulk_amqp.content_header import DELIVERY_MODE, NONE_PRESENT, rewrite
from relay.delivery.local_exchange import Outgoing
from simulation.load import Load
from simulation.losses import in_part
from simulation.memory_brokers import BrokerSlot
from simulation.scenario import check_ledgers
from simulation.topologies import simulated_mesh
from simulation.virtual_time import run_in_virtual_time
from simulation.world import World, silence
from tests.virtual_time import let_pass

BIG = 1_500_000
"""Size of a body in two pieces."""
BYTES_PER_S = 100_000.0
"""Speed of a line that takes seconds for each piece."""
MESSAGE = "exchange1", "site02", 1
ANONYMOUS = 2
"""Seed of two messages, the second without an identity of its own."""


def pieces(log: BrokerSlot) -> list[int]:
    """Offsets of the pieces of big messages."""
    return [one.offset for one in log.stream.records if read_header(one.data).fragment]


def test_the_first_piece_of_a_destroyed_message_may_be_left_undelivered(tmp_path: Path) -> None:
    async def lose_the_second() -> None:
        world = World(simulated_mesh("line", 2, 1), tmp_path, random.Random(1))
        here, there = world.logs["site02"], world.logs["site01"]
        broker, node = world.brokers["site02"], world.nodes["site02"]
        world.start()
        await world.until(world.is_at_rest, lambda: "the start is not over", 60.0)
        world.network.crossings["site02-site01"].line.bytes_per_s = BYTES_PER_S
        body = b"site02/1 " + random.Random(1).randbytes(BIG)
        broker.publish("exchange1", Outgoing(b"k", rewrite(NONE_PRESENT, {DELIVERY_MODE: 2}), body))
        await world.until(lambda: len(pieces(there)) == 1, lambda: "no piece came", 60.0)
        assert world.before_nodes().keys() >= {"site01"}
        broker.go_away()
        world.lose_tail(here, sum(one.offset >= pieces(here)[1] for one in here.stream.records))
        assert world.applications.destroyed == {MESSAGE}
        node.kill()
        await node.died()
        broker.come_back()
        node.start()
        await let_pass(60.0)
        assert in_part(there.stream.records) == {MESSAGE}
        (stages,) = (slot.stages for slot in world.nodes["site01"].slots)
        assert stages is not None
        assert stages.undelivered.messages == 1
        assert world.is_at_rest()
        await world.kill()

    with silence():
        run_in_virtual_time(lose_the_second())


def test_a_batch_lost_just_before_its_record_may_be_delivered_and_recorded_twice(
    tmp_path: Path,
) -> None:
    async def lose_log_and_node() -> None:
        world = World(simulated_mesh("line", 2, 1), tmp_path, random.Random(1))
        here, applications = world.logs["site02"], world.applications
        broker, node = world.brokers["site02"], world.nodes["site02"]
        world.start()
        await applications.publish(broker, Load(2, for_s=30.0), random.Random(ANONYMOUS))
        await let_pass(0.02)  # logged and sent, and not written down yet
        node.kill()
        await node.died()
        await world.until(lambda: not applications.missing(), lambda: "it did not come", 60.0)
        broker.go_away()
        world.lose_tail(here, 1)
        broker.come_back()
        node.start()
        await let_pass(60.0)
        assert world.is_at_rest()
        await world.stop()
        came = applications.arrived["exchange1"]["site01"]
        assert [(one.number, one.flagged) for one in came] == [(0, False), (1, False), (1, False)]
        assert applications.check(doubt=True) == 0
        check_ledgers(world)
        await world.kill()

    with silence():
        run_in_virtual_time(lose_log_and_node())
