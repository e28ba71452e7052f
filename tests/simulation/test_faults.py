"""Every kind of fault, by itself and all together; and mistakes of ours, which are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dedup.barrier import Barrier, Judgement
from relay.batches.batch import BatchHeader
from relay.batches.incarnation import VoidTable
from relay.delivery import properties
from relay.links.forwarding import FilterSeen
from simulation.faults import TOGETHER, Trouble, without_losses
from simulation.load import Load
from simulation.scenario import Scenario, run

LOAD = Load(messages=15, for_s=20.0)


@pytest.mark.parametrize("kind", [*TOGETHER, "change", "failover"])
def test_no_fault_breaks_a_promise(kind: str) -> None:
    outcome = run(Scenario(11, load=LOAD, trouble=Trouble((kind,), every_s=3.0)))
    assert outcome.broken == ""
    assert outcome.trace.counts[kind]


@pytest.mark.parametrize(
    ("seed", "topology", "sites"), [(1, "ring", 3), (2, "complete", 3), (3, "hub", 3)]
)
def test_all_of_them_together_do_not_either(seed: int, topology: str, sites: int) -> None:
    assert run(Scenario(seed, topology, sites, LOAD, Trouble(every_s=2.0))).broken == ""


def test_a_mesh_that_is_linked_otherwise_again_and_again_amid_faults_does_not() -> None:
    trouble = Trouble((*without_losses(TOGETHER), "change"), 1.0)
    assert run(Scenario(4, "ring", 4, LOAD, trouble)).broken == ""


def test_what_is_published_at_two_sites_comes_once_by_the_one_way_or_the_other() -> None:
    trouble = Trouble(("failover",), 1.0)
    outcome = run(Scenario(1, "complete", 3, Load(40, 20.0), trouble))
    assert (outcome.broken, outcome.flagged) == ("", 0)
    arrivals = [line.split() for line in outcome.trace.lines() if " arrived " in line]
    ways = [(one[3].split("/")[0], one[5].split(",")[0]) for one in arrivals if len(one) > 5]
    assert any(origin != first for origin, first in ways)
    assert any(origin == first for origin, first in ways)


def test_no_copy_goes_out_beside_what_a_killed_deliverer_had_published() -> None:
    trouble = Trouble(("failover", "partly-full", "confirms", "kill"), 0.5)
    outcome = run(Scenario(2, load=Load(60, 20.0), trouble=trouble))
    assert outcome.broken == ""
    assert outcome.flagged


def test_a_log_whose_connection_breaks_again_and_again_leaves_nothing_in_doubt() -> None:
    outcome = run(Scenario(1, "complete", 3, Load(40, 60.0), Trouble(("log",))))
    assert (outcome.broken, outcome.flagged) == ("", 0)


def test_what_lands_beside_a_successor_s_appends_comes_in_order_nevertheless() -> None:
    trouble = Trouble(("kill", "late", "egress"), 0.5)
    assert run(Scenario(6, load=Load(150, 20.0), trouble=trouble)).broken == ""


@pytest.mark.slow
def test_queues_that_fill_and_are_slow_leave_no_flow_behind_for_good() -> None:
    load, trouble = Load(150, 6.0, big_one_in=3), Trouble(("slow", "full"), 0.3)
    assert run(Scenario(1, "complete", 3, load, trouble, exchanges=4)).broken == ""


def _forget(barrier: Barrier, judgement: Judgement, *_: Any, **__: Any) -> None:
    """Remember nothing of what was delivered."""
    barrier.release(judgement)


def _no_flag(name: bytes) -> bytes:
    """Flag nothing."""
    return b""


def _never(voids: VoidTable, header: BatchHeader) -> bool:
    """No batch is void."""
    return False


@pytest.mark.parametrize(
    ("where", "what", "mistake", "load", "trouble"),
    [
        (Barrier, "commit", _forget, LOAD, Trouble(())),
        (properties, "true_field", _no_flag, LOAD, Trouble(("deliverer", "confirms"), 1.0)),
        (
            VoidTable,
            "is_void",
            _never,
            Load(100, 20.0),
            Trouble(("kill", "late", "egress", "log"), 0.4),
        ),
    ],
    ids=["a barrier that forgets", "a replay without a flag", "what a run did not end with counts"],
)
def test_a_mistake_of_ours_is_found(
    monkeypatch: pytest.MonkeyPatch,
    where: object,
    what: str,
    mistake: Callable[..., Any],
    load: Load,
    trouble: Trouble,
) -> None:
    monkeypatch.setattr(where, what, mistake)
    outcomes = (run(Scenario(seed, load=load, trouble=trouble)) for seed in range(1, 41))
    assert next((one.broken for one in outcomes if one.broken), "").startswith("I2")


def test_a_link_that_does_not_begin_anew_when_it_is_to_carry_more_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FilterSeen, "stranded_by", lambda *_: False)
    trouble = Trouble(("change",), 2.0)
    outcomes = (run(Scenario(seed, "complete", 3, LOAD, trouble)) for seed in range(1, 11))
    assert next((one.broken for one in outcomes if one.broken), "").startswith("I8: the link")
