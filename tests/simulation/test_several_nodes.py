"""Worlds whose sites have several nodes each, which take over from each other amid faults."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from isthmus.commands.simulate_worlds import command_of
from relay.packing.memory_egress import Returns
from simulation.faults import OF_NODES, Trouble, all_kinds
from simulation.load import Load
from simulation.scenario import Scenario, run
from simulation.search import random_scenario
from simulation.simulated_node import SimulatedNode
from simulation.site_servers import SESSION_S
from simulation.topologies import simulated_mesh
from simulation.virtual_time import run_in_virtual_time
from simulation.world import World, silence
from tests.virtual_time import let_pass

LOAD = Load(messages=30, for_s=20.0)


@pytest.mark.parametrize("kind", OF_NODES)
def test_no_fault_of_nodes_breaks_a_promise(kind: str) -> None:
    trouble = Trouble((kind,), every_s=2.0)
    returns = Returns.SHUFFLED if kind == "split" else Returns.FIFO
    outcome = run(Scenario(3, load=LOAD, trouble=trouble, returns=returns, nodes=2))
    assert outcome.broken == ""
    assert outcome.trace.counts["freeze" if kind == "takeover" else kind]


@pytest.mark.parametrize(
    ("seed", "nodes", "returns"),
    [
        (1, 2, Returns.FIFO),
        (2, 3, Returns.FIFO),
        (3, 2, Returns.SHUFFLED),
        (4, 3, Returns.SHUFFLED),
    ],
)
def test_all_faults_together_do_not_either(seed: int, nodes: int, returns: Returns) -> None:
    trouble = Trouble(all_kinds(nodes), every_s=1.0)
    assert run(Scenario(seed, "ring", 3, LOAD, trouble, returns=returns, nodes=nodes)).broken == ""


def test_a_node_that_stops_beside_a_broken_log_may_leave_doubt_to_the_next_run() -> None:
    trouble = Trouble(("log", "stop", "disk"), every_s=0.3)
    assert trouble.leaves_doubt(nodes=2)
    assert not trouble.leaves_doubt(nodes=1)
    load = Load(messages=100, for_s=20.0, big_one_in=1000)
    assert run(Scenario(30041, "tree", 2, load, trouble, exchanges=1, nodes=2)).broken == ""


def test_some_of_the_drawn_worlds_have_several_nodes_and_can_be_run_again() -> None:
    scenarios = [random_scenario(seed) for seed in range(1, 301)]
    several = [one for one in scenarios if one.nodes > 1]
    assert 30 < len(several) < 90
    assert all(f"--nodes {one.nodes}" in command_of(one) for one in several)
    assert all(set(OF_NODES).isdisjoint(one.trouble.kinds) for one in scenarios if one.nodes == 1)


class Line:
    """Two sites of two nodes, up and running, without faults."""

    def __init__(self, folder: Path) -> None:
        mesh = simulated_mesh("line", 2, 1)
        self.world = World(mesh, folder, random.Random(1), nodes=2)
        self.nodes = self.world.nodes_of("site01")

    async def at_work(self, other_than: SimulatedNode | None = None) -> SimulatedNode:
        """Wait until one node of the first site runs it, and return that node."""

        def found() -> list[SimulatedNode]:
            return [one for one in self.nodes if one.is_at_work and one is not other_than]

        await self.world.until(lambda: len(found()) == 1, lambda: "nobody runs the site", 30.0)
        return found()[0]

    async def is_entered(self, node: SimulatedNode) -> None:
        """Wait until the ensemble says that a node should run the first site."""
        servers = node.home.servers
        assert servers is not None
        await self.world.until(
            lambda: servers.holder() == node.name, lambda: f"{node.name} is not entered", 30.0
        )


def test_no_slot_moves_when_all_sessions_expire_at_once(tmp_path: Path) -> None:
    async def expire() -> None:
        line = Line(tmp_path)
        line.world.start()
        first = await line.at_work()
        servers = first.home.servers
        assert servers is not None
        for _ in range(10):
            servers.ensemble.expire_all()
            assert servers.holder() is None
            await line.is_entered(first)
            # Time for others to take what is not theirs.
            await let_pass(1.5 * SESSION_S)
        assert servers.rows[0].ownership is not None
        assert servers.rows[0].ownership.owner.epoch == 1
        assert first.is_at_work
        await line.world.stop()

    with silence():
        run_in_virtual_time(expire())


def test_a_thawed_node_stands_by_without_ending(tmp_path: Path) -> None:
    async def freeze() -> None:
        line = Line(tmp_path)
        line.world.start()
        first = await line.at_work()
        thaw = first.freeze()
        (other,) = (one for one in line.nodes if one is not first)
        await line.is_entered(other)
        first.lose_connections()
        second = await line.at_work(first)
        thaw()
        await line.world.until(lambda: not first.is_at_work, lambda: "both run the site", 30.0)
        assert first.is_running
        assert second.is_at_work
        await line.world.stop()

    with silence():
        run_in_virtual_time(freeze())
