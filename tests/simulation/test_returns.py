"""Worlds whose egress hands out again late and in any order, as a cluster's may."""

from __future__ import annotations

import pytest

from isthmus.commands.simulate_worlds import command_of
from relay.packing.memory_egress import Returns
from simulation.faults import TOGETHER, Trouble, without_losses
from simulation.load import Load
from simulation.scenario import Scenario, run
from simulation.search import random_scenario

FEW = Load(messages=30, for_s=20.0, big_one_in=40)
OF_PACKERS = Trouble(("kill", "stop", "egress", "log", "late", "power"), every_s=0.5)
ALL = Trouble(TOGETHER, every_s=1.0)
CHANGES = Trouble((*without_losses(TOGETHER), "change"), every_s=1.0)


@pytest.mark.parametrize(
    ("seed", "topology", "trouble"),
    [
        (1, "line", OF_PACKERS),
        (2, "ring", OF_PACKERS),
        (3, "complete", OF_PACKERS),
        (4, "ring", ALL),
        (5, "tree", CHANGES),
    ],
)
def test_nothing_is_lost_or_repeated_unflagged_where_egress_returns_in_any_order(
    seed: int, topology: str, trouble: Trouble
) -> None:
    scenario = Scenario(seed, topology, 3, FEW, trouble, returns=Returns.SHUFFLED)
    assert run(scenario).broken == ""


def test_some_of_the_worlds_that_are_drawn_are_so_and_can_be_run_again() -> None:
    scenarios = [random_scenario(seed) for seed in range(1, 301)]
    shuffled = [one for one in scenarios if one.returns is Returns.SHUFFLED]
    assert 30 < len(shuffled) < 90
    assert all("--returns shuffled" in command_of(one) for one in shuffled)
