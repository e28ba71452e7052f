"""Worlds whose exchanges have partitions: all is promised, and the order by key."""

from __future__ import annotations

import pytest

from isthmus.commands.simulate_worlds import command_of
from relay.batches.mesh_headers import PATH_HEADER
from relay.bulk_amqp.content_header import NONE_PRESENT, rewrite
from relay.bulk_amqp.field_table import entry, long_string
from relay.delivery.local_exchange import Outgoing
from relay.packing.memory_egress import MemoryEgressBroker
from simulation import load
from simulation.applications import Applications
from simulation.faults import Trouble
from simulation.invariants import InvariantBroken
from simulation.load import KEYS, Load
from simulation.memory_brokers import application_queue
from simulation.scenario import Scenario, run
from simulation.search import random_scenario
from simulation.topologies import simulated_mesh, with_partitions
from simulation.trace import Trace
from simulation.virtual_time import run_in_virtual_time

LOAD = Load(messages=40, for_s=20.0, big_one_in=40)


def test_messages_go_through_all_partitions_and_what_is_promised_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queues: set[str] = set()
    publish = MemoryEgressBroker.publish

    def noted(self: MemoryEgressBroker, queue: str, *of: object) -> None:
        queues.add(queue)
        publish(self, queue, *of)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryEgressBroker, "publish", noted)
    trouble = Trouble(("kill", "power"), every_s=2.0)
    for seed in range(1, 4):
        scenario = Scenario(seed, "line", 3, LOAD, trouble, 2, slots=3, partitions=3)
        assert run(scenario).broken == ""
    assert len(queues) == 2 * 3


def test_a_world_with_partitions_is_repeated_by_its_command() -> None:
    scenario = next(
        one for one in map(random_scenario, range(1, 100)) if one.partitions > 1 and one.sites < 5
    )
    assert f"--partitions {scenario.partitions}" in command_of(scenario)


@pytest.mark.parametrize(("second", "is_broken"), [(1, False), (KEYS, True)])
def test_order_is_asked_of_messages_of_a_key(second: int, is_broken: bool) -> None:
    async def arrive() -> Applications:
        applications = Applications(mesh, Trace())
        arrives = applications.listener(other)
        for number in (second, 0):
            body = b"%s/%d x" % (origin.encode(), number)
            applications.published["exchange1"][origin][number] = body
            path = entry(PATH_HEADER, long_string(origin.encode()))
            message = Outgoing(load.key_of(number), rewrite(NONE_PRESENT, {}, path), body)
            arrives(application_queue("exchange1"), message)
            at_home = load.arrived(message)._replace(path=())
            applications.arrived["exchange1"][one].append(at_home)
        return applications

    mesh = with_partitions(simulated_mesh("line", 2, 1), 2)
    one, other = mesh.sites
    origin = mesh.sites[one].cluster_id
    applications = run_in_virtual_time(arrive())
    if is_broken:
        with pytest.raises(InvariantBroken, match="I5"):
            applications.check(doubt=False)
    else:
        assert applications.check(doubt=False) == 0
