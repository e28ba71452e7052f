"""Worlds whose sites of several nodes keep large messages in a content store."""

from __future__ import annotations

import pytest

from simulation.faults import Trouble
from simulation.load import Load
from simulation.scenario import Scenario, run

LOAD = Load(messages=25, for_s=20.0, big_one_in=3)


@pytest.mark.parametrize("seed", [1, 2])
def test_no_fault_of_a_content_store_breaks_a_promise(seed: int) -> None:
    trouble = Trouble(("journal", "kill", "takeover", "log", "late"), every_s=1.0)
    outcome = run(Scenario(seed, "ring", 3, LOAD, trouble, nodes=2))
    assert outcome.broken == ""
    assert outcome.trace.counts["journal"]
    assert outcome.trace.counts["referred"], "some came without their bodies"


def test_a_content_that_is_lost_is_a_gap_and_nothing_else_is_missing() -> None:
    trouble = Trouble(("content", "stop", "cut"), every_s=0.7)
    outcome = run(Scenario(6, "ring", 3, LOAD, trouble, nodes=2))
    assert outcome.broken == ""
    assert outcome.trace.counts["lost"]
    assert outcome.trace.counts["accepted"], "somebody needed what was lost"
