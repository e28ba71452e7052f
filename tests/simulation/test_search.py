"""A world that fails is made smaller for as long as it fails in the same way."""

from __future__ import annotations

from dataclasses import replace

from simulation.faults import Trouble
from simulation.load import Load
from simulation.scenario import Scenario, ScenarioOutcome
from simulation.search import failure_kind, random_scenario, shrink
from simulation.topologies import FEWEST
from simulation.trace import Trace

FAILED = "I2 at site01: unflagged duplicates"


def outcome_of(scenario: Scenario, broken: str) -> ScenarioOutcome:
    return ScenarioOutcome(scenario, broken, Trace(), 1.0, 1.0, 1, 1, 0, faults=12)


def run(scenario: Scenario) -> ScenarioOutcome:
    """Fails as long as fault 5 strikes and four messages are published, at three sites or more;
    without fault 7 otherwise.
    """
    load, without = scenario.load, scenario.trouble.without
    published = load.messages if load.first is None else load.first
    fails = published >= 4 and 5 not in without and scenario.sites >= 3
    if fails and 7 in without:
        return outcome_of(scenario, "I1 at site01: 1 of 9 are missing")
    return outcome_of(scenario, FAILED if fails else "")


def test_what_does_not_matter_is_left_out() -> None:
    big = outcome_of(Scenario(1, "tree", 6, Load(100), Trouble(), exchanges=3), FAILED)
    small = shrink(big, run, lambda: True)
    assert small.broken == FAILED
    assert small.scenario == Scenario(
        1, "tree", 3, Load(100, first=4), Trouble(without=frozenset({*range(1, 13)} - {5, 7})), 1
    )


def test_it_ends_when_it_is_to() -> None:
    big = outcome_of(Scenario(1, "tree", 6), FAILED)
    assert shrink(big, run, lambda: False) is big


def test_another_failure_is_another_way() -> None:
    invariant = failure_kind("I2 at site01: x")
    assert invariant == failure_kind("I2 at site02: y") != failure_kind("I1 at site01: x")
    assert failure_kind("after 900 s messages have not come") == "after"
    assert failure_kind("ZeroDivisionError: x") == "ZeroDivisionError:"


def test_without_a_fault_the_others_strike_as_they_would() -> None:
    from simulation.scenario import run as simulate

    whole = Scenario(3, "line", 2, Load(10, 10.0), Trouble(("reset", "egress"), 1.0))
    lines = list(simulate(whole).trace.lines())
    trouble = replace(whole.trouble, without=frozenset({2}))
    left = simulate(replace(whole, trouble=trouble, load=replace(whole.load, first=6)))
    assert left.broken == ""
    faults = [line.split()[:3] for line in lines if line.split()[1] in whole.trouble.kinds]
    without = [
        line.split()[:3] for line in left.trace.lines() if line.split()[1] in whole.trouble.kinds
    ]
    assert len(faults) > 3
    assert [line[1:] for line in without] == [line[1:] for line in [faults[0], *faults[2:]]]
    assert left.published < simulate(whole).published


def test_seeds_draw_meshes_of_all_kinds_that_can_be() -> None:
    scenarios = [random_scenario(seed) for seed in range(1, 301)]
    assert scenarios == [random_scenario(seed) for seed in range(1, 301)]
    assert {one.topology for one in scenarios} == set(FEWEST)
    assert all(FEWEST[one.topology] <= one.sites <= 30 for one in scenarios)
    sizes = sorted(one.sites for one in scenarios)
    assert (sizes[0], sizes[len(sizes) // 2]) <= (2, 4)
    assert sizes[-1] > 20
