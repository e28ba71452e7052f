"""Worlds whose sites have several nodes that share several slots."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from federation.slots import SlotMap
from isthmus.cli import app
from isthmus.commands.simulate_worlds import command_of
from relay.packing.memory_egress import Returns
from simulation.faults import OF_NODES, OF_SHARED_SLOTS, Trouble, all_kinds
from simulation.load import Load
from simulation.scenario import Scenario, run
from simulation.search import random_scenario
from simulation.simulated_node import SimulatedNode
from simulation.topologies import simulated_mesh
from simulation.virtual_time import run_in_virtual_time
from simulation.world import World, silence

LOAD = Load(messages=20, for_s=20.0)
SLOTS = 4


@pytest.mark.parametrize(
    ("seed", "nodes", "returns"), [(1, 2, Returns.FIFO), (2, 3, Returns.SHUFFLED)]
)
def test_faults_break_no_promise_where_nodes_share_slots(
    seed: int, nodes: int, returns: Returns
) -> None:
    trouble = Trouble(all_kinds(nodes, 3), every_s=1.0)
    scenario = Scenario(seed, "ring", 3, LOAD, trouble, 5, returns=returns, nodes=nodes, slots=3)
    outcome = run(scenario)
    assert outcome.broken == ""


def test_slots_that_an_operator_moves_lose_and_repeat_nothing() -> None:
    trouble = Trouble(OF_SHARED_SLOTS, every_s=1.0)
    outcome = run(Scenario(1, "line", 2, LOAD, trouble, 5, nodes=3, slots=3))
    assert outcome.broken == ""
    assert outcome.trace.counts["move"] > 5


def test_nodes_share_the_slots_evenly_and_a_killed_nodes_slots_go_to_the_others(
    tmp_path: Path,
) -> None:
    async def share() -> None:
        mesh = simulated_mesh("line", 2, 5, slots=[SlotMap(SLOTS), SlotMap(1)])
        world = World(mesh, tmp_path, random.Random(1), nodes=3)
        world.start()
        nodes = world.nodes_of("site01")
        await world.until(lambda: _counts(nodes) == [1, 1, 2], lambda: f"{_counts(nodes)}", 120.0)
        killed = nodes[0]
        killed.kill()
        await world.until(lambda: _counts(nodes) == [0, 2, 2], lambda: f"{_counts(nodes)}", 60.0)
        held = [slot for node in nodes[1:] for slot in node.at_work]
        assert sorted(held) == list(range(SLOTS))
        killed.start()
        await world.until(lambda: _counts(nodes) == [1, 1, 2], lambda: f"{_counts(nodes)}", 120.0)
        await world.stop()

    with silence():
        run_in_virtual_time(share())


def test_drawn_worlds_whose_nodes_share_slots_have_faults_of_nodes_and_can_be_run_again() -> None:
    drawn = [random_scenario(seed, 3, 2) for seed in range(1, 101)]
    assert all(set(one.trouble.kinds) & {*OF_NODES, *OF_SHARED_SLOTS} for one in drawn)
    assert any("move" in one.trouble.kinds for one in drawn)
    assert all("--nodes 2 --slots 3" in command_of(one) for one in drawn)
    command = f"{command_of(drawn[0])} --messages 3".removeprefix("isthmus ")
    result = CliRunner().invoke(app, [*command.split(), "--json"])
    assert result.exit_code == 0, result.output
    (told,) = json.loads(result.stdout)["runs"]
    assert told["good"]


@pytest.mark.parametrize("options", [[], ["--nodes", "2"], ["--slots", "2"]])
def test_a_move_of_slots_that_nobody_shares_is_refused(options: list[str]) -> None:
    result = CliRunner().invoke(app, ["simulate", "--faults", "move", *options])
    assert result.exit_code == 2
    assert "move strikes sites whose nodes share slots: add --nodes 2 --slots 3" in result.stderr


def _counts(nodes: list[SimulatedNode]) -> list[int]:
    """Return how many slots each node runs, the fewest first."""
    return sorted(len(node.at_work) for node in nodes)
