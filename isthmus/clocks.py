"""Comparison of neighbours' clocks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from federation.mesh import Mesh

CLOCKS_MAY_DIFFER = timedelta(seconds=5)
"""Tolerated difference: small beside most outage windows, large beside the error of time servers
and the one-second resolution of a management API's Date header.
"""


def limit_ms(mesh: Mesh) -> float:
    """Return the difference (ms) from which clocks are reported: message ages are measured with
    them and judged by the outage window.
    """
    return min(CLOCKS_MAY_DIFFER.total_seconds(), mesh.outage_window_s / 10) * 1000


def clocks_apart(mesh: Mesh, links: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each pair of neighbours whose clocks differ too much, by the links'
    reports.
    """
    limit = limit_ms(mesh)
    worst: dict[frozenset[str], tuple[float, str]] = {}
    for link in links:
        ahead = link.get("clock_ahead_ms")
        if ahead is None or abs(ahead) <= limit:
            continue
        first, last = (link["to"], link["from"]) if ahead > 0 else (link["from"], link["to"])
        line = f"the clock of {first} is {abs(ahead) / 1000:.1f} s ahead of {last}'s"
        if abs(ahead) > mesh.outage_window_s * 1000:
            line += (
                f", more than the outage window: what {last} publishes may be quarantined elsewhere"
            )
        pair = frozenset((first, last))
        worst[pair] = max(worst.get(pair, (0.0, "")), (abs(ahead), line))
    return [line for _, line in worst.values()]
