"""Worlds with `order: best_effort`: later messages pass refused ones, and all else is promised."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from isthmus.commands.simulate_worlds import command_of
from relay.delivery.deferred_batches import DeferredBatches
from simulation.faults import FAULTS, OF_BEST_EFFORT, Trouble, all_kinds
from simulation.invariants import InvariantBroken, check_order
from simulation.load import Load
from simulation.scenario import Scenario, run
from simulation.search import random_scenario
from simulation.topologies import simulated_mesh
from simulation.virtual_time import run_in_virtual_time
from simulation.world import World

LOAD = Load(messages=40, for_s=20.0, big_one_in=40)
FULL = Trouble(OF_BEST_EFFORT, every_s=1.0)


@pytest.fixture
def deferrals(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Exchanges of the deferred messages of all worlds, one for each message."""
    found: list[str] = []
    take_in = DeferredBatches.take_in

    def noted(self: DeferredBatches, *of: Any) -> bool:
        is_deferred = take_in(self, *of)
        found.extend([self._flow.exchange] * is_deferred)
        return is_deferred

    monkeypatch.setattr(DeferredBatches, "take_in", noted)
    return found


def test_beside_full_queues_messages_of_the_first_exchanges_are_deferred(
    deferrals: list[str],
) -> None:
    for seed in range(1, 4):
        assert run(Scenario(seed, "line", 2, LOAD, FULL, 2, best_effort=1)).broken == ""
    assert len(deferrals) > 10
    assert set(deferrals) == {"exchange1"}


def test_the_order_of_exchanges_stays_as_the_mesh_is_linked_otherwise(tmp_path: Path) -> None:
    async def change() -> None:
        world = World(simulated_mesh("ring", 3, 2, best_effort=1), tmp_path, random.Random(1))
        world.start()
        await FAULTS["change"].strike(world, random.Random(1))
        assert world.mesh.exchanges == world.first_mesh.exchanges
        await world.kill()

    run_in_virtual_time(change())


@pytest.mark.parametrize(
    ("seed", "topology", "nodes"), [(1, "ring", 1), (2, "complete", 1), (3, "line", 2)]
)
def test_nothing_is_lost_repeated_unflagged_or_overtaken_without_a_refusal(
    seed: int, topology: str, nodes: int
) -> None:
    trouble = Trouble(all_kinds(nodes, best_effort=2), every_s=1.0)
    scenario = Scenario(seed, topology, 3, LOAD, trouble, 3, nodes=nodes, best_effort=2)
    assert run(scenario).broken == ""


def test_some_of_the_worlds_that_are_drawn_are_so_and_can_be_run_again() -> None:
    scenarios = [random_scenario(seed) for seed in range(1, 301)]
    of_both = [one for one in scenarios if one.best_effort]
    assert 50 < len(of_both) < 130
    assert any(one.best_effort < one.exchanges for one in of_both)
    assert all(f"--best-effort {one.best_effort}" in command_of(one) for one in of_both)
    for one in scenarios:
        assert set(OF_BEST_EFFORT).issubset(one.trouble.kinds) == bool(one.best_effort)


def test_what_no_queue_refused_is_to_come_in_order() -> None:
    check_order("site01", "site02", [1, 5, 2, 3], {("site02", 5)})
    with pytest.raises(InvariantBroken, match="I5 at site01: from site02: "):
        check_order("site01", "site02", [1, 5, 2, 3], {("site02", 2)})
