"""What a link is said to be, by positions and times."""

from __future__ import annotations

from typing import Any

import pytest

from relay.batches.batch import EVERY_SITE, BatchName, Series
from relay.links.link_state import LinkFacts, Movement, ReportedState, reported_state

SERIES = Series("paris", bytes(8), "orders", 0, EVERY_SITE)
WAITS: dict[str, Any] = {"lag_messages": 5, "lag_s": 10.1}
STUCK: dict[str, Any] = {"lag_messages": 5, "lag_s": 31.0, "unmoved_s": 30.1}
AWAY: dict[str, Any] = {"in_session": False, "heard_s": None}


@pytest.mark.parametrize(
    ("facts", "state", "said"),
    [
        (LinkFacts(), "running", ""),
        (LinkFacts(lag_messages=5, lag_s=10.0, unmoved_s=10.0), "running", ""),
        (LinkFacts(**WAITS), "lagging", "has waited 10 s"),
        (LinkFacts(lag_messages=5, lag_s=31.0, unmoved_s=30.0), "lagging", ""),
        (
            LinkFacts(**STUCK),
            "stalled",
            "has acknowledged nothing for 30 s of 5",
        ),
        # Whatever the connection, nothing of what waits has got anywhere.
        (LinkFacts(lag_messages=1, lag_s=0.0, unmoved_s=61.0), "stalled", ""),
        (LinkFacts(lag_messages=0, lag_s=0.0, unmoved_s=61.0), "running", ""),
        (LinkFacts(unanswered_s=30.0), "running", ""),
        (LinkFacts(unanswered_s=30.1), "stalled", "has not been acknowledged for 30 s"),
        (LinkFacts(unanswered_s=30.1, **WAITS), "stalled", "without messages"),
        (LinkFacts(unanswered_s=30.1, **STUCK), "stalled", "has acknowledged nothing"),
        (LinkFacts(unanswered_s=30.1, heard_s=11.1), "down", "nothing heard"),
        (LinkFacts(heard_s=11.0), "running", ""),
        (LinkFacts(heard_s=11.1, **STUCK), "down", "nothing heard of tokyo for 11 s"),
        (LinkFacts(**AWAY), "starting", ""),
        (LinkFacts(**AWAY, **STUCK), "starting", ""),
        (LinkFacts(reason="nobody there", **AWAY), "down", "nobody there"),
        (LinkFacts(reason="format 3 is not known"), "down", "format 3 is not known"),
        (LinkFacts(is_blocked=True, heard_s=60.0, **STUCK), "blocked", "takes no publishes"),
        (LinkFacts(is_blocked=True, reason="the connection is blocked", **AWAY), "blocked", ""),
        (LinkFacts(gap="gap: it was eaten", reason="gap: ...", **AWAY), "gap", "it was eaten"),
    ],
)
def test_it_is_told_by_positions_and_times(facts: LinkFacts, state: str, said: str) -> None:
    told, why = reported_state(facts, "tokyo")
    assert told is ReportedState(state)
    assert said in why
    assert bool(why) or state in ("running", "starting")


def test_only_what_waits_and_does_not_move_is_unmoved() -> None:
    movement = Movement()
    assert movement.unmoved_s(5.0) == 0.0
    movement.note(None, 0, 10.0)
    movement.note(None, 0, 20.0)  # nothing to carry
    assert movement.unmoved_s(20.0) == 0.0
    movement.note(None, 3, 21.0)
    movement.note(None, 9, 40.0)
    assert movement.unmoved_s(40.0) == 20.0
    movement.note(BatchName(SERIES, 1), 8, 41.0)
    assert movement.unmoved_s(42.0) == 1.0
    movement.note(BatchName(SERIES, 1), 0, 60.0)
    assert movement.unmoved_s(60.0) == 0.0
