"""What is to be said of neighbours' clocks that differ. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from federation.mesh import Mesh

CLOCKS_MAY_DIFFER = timedelta(seconds=5)
"""Small beside most outage windows, large beside what time servers leave, and beside the second in
which the Date header of a management API counts."""


def limit_ms(mesh: Mesh) -> float:
    """From what difference of two sites' clocks on it is said: the age of messages is told by them,
    and is judged by the outage window.
    """
    return min(CLOCKS_MAY_DIFFER.total_seconds(), mesh.outage_window_s / 10) * 1000


def clocks_apart(mesh: Mesh, links: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each two neighbours whose clocks differ by more than that, as links report it."""
    limit = limit_ms(mesh)
    worst: dict[frozenset[str], tuple[float, str]] = {}
    for link in links:
        ahead = link.get("clock_ahead_ms")
        if ahead is None or abs(ahead) <= limit:
            continue
        first, last = (link["to"], link["from"]) if ahead > 0 else (link["from"], link["to"])
        said = f"the clock of {first} is {abs(ahead) / 1000:.1f} s ahead of {last}'s"
        if abs(ahead) > mesh.outage_window_s * 1000:
            said += (
                f", more than the outage window: what {last} publishes may be quarantined elsewhere"
            )
        pair = frozenset((first, last))
        worst[pair] = max(worst.get(pair, (0.0, "")), (abs(ahead), said))
    return [said for _, said in worst.values()]
