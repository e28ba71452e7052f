"""Every kind of fault, by itself and all together; and mistakes of ours, which are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dedup.barrier import Barrier
from relay.delivery import properties
from simulation.faults import FAULTS, Trouble
from simulation.load import Load
from simulation.scenario import Scenario, run

LOAD = Load(messages=15, for_s=20.0)


@pytest.mark.parametrize("kind", FAULTS)
def test_no_fault_breaks_a_promise(kind: str) -> None:
    outcome = run(Scenario(11, load=LOAD, trouble=Trouble((kind,), every_s=3.0)))
    assert outcome.broken == ""
    assert outcome.trace.counts[kind]


@pytest.mark.parametrize(
    ("seed", "topology", "sites"), [(1, "ring", 3), (2, "complete", 3), (3, "hub", 3)]
)
def test_all_of_them_together_do_not_either(seed: int, topology: str, sites: int) -> None:
    assert run(Scenario(seed, topology, sites, LOAD, Trouble(every_s=2.0))).broken == ""


def test_a_log_whose_connection_breaks_again_and_again_leaves_nothing_in_doubt() -> None:
    outcome = run(Scenario(1, "complete", 3, Load(40, 60.0), Trouble(("log",))))
    assert (outcome.broken, outcome.flagged) == ("", 0)


def _forget(*_: Any, **__: Any) -> None:
    """Remember nothing of what was delivered."""


def _no_flag(name: bytes) -> bytes:
    """Flag nothing."""
    return b""


@pytest.mark.parametrize(
    ("where", "what", "mistake", "scenario", "told"),
    [
        (
            Barrier,
            "commit",
            _forget,
            Scenario(3, load=LOAD, trouble=Trouble(("kill", "late"), 2.0)),
            "I6",
        ),
        (
            properties,
            "true_field",
            _no_flag,
            Scenario(1, load=Load(30, 20.0), trouble=Trouble(("deliverer", "confirms"), 1.0)),
            "I2",
        ),
    ],
    ids=["a barrier that forgets", "a replay without a flag"],
)
def test_a_mistake_of_ours_is_found(
    monkeypatch: pytest.MonkeyPatch,
    where: object,
    what: str,
    mistake: Callable[..., Any],
    scenario: Scenario,
    told: str,
) -> None:
    monkeypatch.setattr(where, what, mistake)
    assert run(scenario).broken.startswith(told)
