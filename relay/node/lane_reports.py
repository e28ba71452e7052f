"""What a node says of links with lanes: a link is as bad as its worst strand. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from federation.lanes import NORMAL
from federation.mesh import Link
from relay.links.link_state import ReportedState
from relay.links.metrics import LinkState

_FROM_BAD_TO_GOOD = (
    *(state.value for state in ReportedState),
    *(state.value for state in LinkState if state.value not in set(ReportedState)),
)
_WORST_OF = ("lag_messages", "lag_bytes", "lag_seconds")
"""A strand counts as before it what stands in the log behind its place, of whatever lane: so these
do not add up."""
_OF_ANY = (
    "from",
    "to",
    "state",
    "reason",
    "receiver_formats",
    "round_trip_s",
    "clock_ahead_ms",
    "max_rate",
    "connected_to",
)


def reports_by_link(told: Iterable[tuple[Link, dict[str, Any]]]) -> list[dict[str, Any]]:
    """One report a link, of those of its strands; of a link that is one strand, that one as it is.

    Counters are the sum of the strands'; below `lanes` stands each with its own.
    """
    by_link: dict[str, list[tuple[Link, dict[str, Any]]]] = {}
    for link, report in told:
        by_link.setdefault(link.line_name, []).append((link, report))
    return [
        strands[0][1] if len(strands) == 1 and not strands[0][0].lane else _together(strands)
        for strands in by_link.values()
    ]


def _together(strands: list[tuple[Link, dict[str, Any]]]) -> dict[str, Any]:
    reports = [report for _, report in strands]
    worst_link, worst = min(strands, key=lambda one: _badness(one[1]["state"]))
    plain = next((report for link, report in strands if not link.lane), worst)
    reason = worst["reason"]
    # Of all strands for the same reason, where one line is away: told as that of the link.
    if reason and any(report["reason"] != reason for report in reports):
        reason = f"lane {worst_link.lane or NORMAL}: {reason}"
    whole: dict[str, Any] = {}
    for name, value in plain.items():
        values = [report[name] for report in reports if report.get(name) is not None]
        if name in _OF_ANY:
            whole[name] = values[0] if value is None and values else value
        elif name in _WORST_OF:
            whole[name] = max(values, default=value)
        elif isinstance(value, dict):
            whole[name] = dict(sum((Counter(one) for one in values), Counter[str]()))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            whole[name] = sum(values)
        else:
            whole[name] = value
    whole["state"], whole["reason"] = worst["state"], reason
    whole["lanes"] = {
        link.lane or NORMAL: {
            name: value for name, value in report.items() if name not in ("from", "to")
        }
        for link, report in strands
    }
    return whole


def _badness(state: str) -> int:
    return _FROM_BAD_TO_GOOD.index(state)
