"""What is told of a link with lanes."""

from __future__ import annotations

from typing import Any

from federation.mesh import Link
from relay.node.link_reports import reports_by_link

LINK = Link("a", "b", "b")
URGENT, BULK = Link("a", "b", "b", lane="urgent"), Link("a", "b", "b", lane="bulk")


def report(state: str = "running", reason: str = "", **more: Any) -> dict[str, Any]:
    return {"from": "a", "to": "b", "state": state, "reason": reason, "sent": 1} | more


def test_a_link_of_one_strand_is_told_as_it_is() -> None:
    one = report(lag_messages=5)
    assert reports_by_link([(LINK, one)]) == [one]


def test_a_link_is_as_bad_as_its_worst_lane_whose_reason_it_has() -> None:
    told = [
        (URGENT, report(lag_messages=0, lag_seconds=0.0)),
        (LINK, report(lag_messages=3, lag_seconds=2.0)),
        (BULK, report("gap", "the log begins at 5", lag_messages=900, lag_seconds=None)),
    ]
    (link,) = reports_by_link(told)
    assert (link["state"], link["reason"]) == ("gap", "lane bulk: the log begins at 5")
    assert (link["lag_messages"], link["lag_seconds"], link["sent"]) == (900, 2.0, 3)
    assert {lane: one["state"] for lane, one in link["lanes"].items()} == {
        "urgent": "running",
        "normal": "running",
        "bulk": "gap",
    }
    assert "from" not in link["lanes"]["bulk"]


def test_a_line_that_is_away_is_told_as_that_of_the_link() -> None:
    (link,) = reports_by_link((one, report("down", "no answer")) for one in (URGENT, LINK, BULK))
    assert (link["state"], link["reason"]) == ("down", "no answer")


def test_reasons_are_counted_together() -> None:
    told = [(URGENT, report(ends={"lost": 1})), (LINK, report(ends={"lost": 2, "gap": 1}))]
    (link,) = reports_by_link(told)
    assert link["ends"] == {"lost": 3, "gap": 1}


def test_what_is_measured_of_the_line_is_that_of_a_strand_that_knows_it() -> None:
    told = [
        (URGENT, report(max_rate=9, clock_ahead_ms=7, round_trip_s=0.2, receiver_formats="1-2")),
        (LINK, report(max_rate=9, clock_ahead_ms=None, round_trip_s=0.1, receiver_formats=None)),
    ]
    (link,) = reports_by_link(told)
    assert (link["clock_ahead_ms"], link["round_trip_s"]) == (7, 0.1)
    assert (link["receiver_formats"], link["max_rate"]) == ("1-2", 9)


def test_links_are_told_apart() -> None:
    other = Link("a", "c", "c")
    told = reports_by_link([(LINK, report()), (other, report() | {"to": "c"}), (BULK, report())])
    assert [(one["to"], "lanes" in one) for one in told] == [("b", True), ("c", False)]
