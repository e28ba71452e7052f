"""When a mesh has drained, and how long it may take."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chaos.drain import not_drained
from tests.chaos.outcome import Drain


def status_report(**changes: Any) -> dict[str, Any]:
    site = {
        "state": "running",
        "egress_messages": 0,
        "undelivered_messages": 0,
        "standing_flows": {},
        "delivered": 12,
    }
    link = {"from": "paris", "to": "tokyo", "state": "running", "lag_messages": 0}
    of_link = {key: value for key, value in changes.items() if key == "lag_messages"}
    of_site = {key: value for key, value in changes.items() if key not in of_link}
    return {"sites": {"paris": site | of_site}, "links": [link | of_link]}


def test_a_mesh_with_nothing_under_way_has_drained() -> None:
    assert not_drained(status_report()) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[("state", "down"), ("egress_messages", 3), ("egress_messages", None)],
        *[("undelivered_messages", 1), ("standing_flows", {"tokyo/orders": "full"})],
        *[("lag_messages", 7), ("lag_messages", None)],
    ],
)
def test_whatever_is_under_way_or_not_known_is_said(key: str, value: Any) -> None:
    assert not_drained(status_report(**{key: value})) == [
        f"{'paris-tokyo' if key == 'lag_messages' else 'paris'}: {key} {value}"
    ]


def test_it_may_take_one_and_a_half_times_what_the_backlog_took_to_come_and_half_a_minute() -> None:
    assert Drain(backlog=1000, live_per_s=50.0).deadline_s == 60.0
    assert Drain(backlog=0, live_per_s=0.0).deadline_s == 30.0
