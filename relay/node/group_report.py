"""Figures of a site's membership in its multicast group, for `isthmus status` and the metrics."""

from __future__ import annotations

from typing import Any

from federation.mesh import Mesh
from federation.multicast import group_sites
from relay.group.brought import BroughtBatches
from relay.group.datagram import site_id
from relay.group.group_task import GroupTask

_OF_TASK = (
    *("published", "too_big", "above_the_rate"),
    *("appended", "refused", "foreign", "repeated", "malformed"),
    "of another mesh file",
)
_OF_RECEIVER = (
    *("receiving_pieces", "receiving_late", "receiving_frames", "receiving_repaired"),
    *("receiving_nacks", "receiving_lost"),
)
"""Counters that are reported while 0 as well, so that a metric is there from the start."""


def group_report(
    task: GroupTask, brought: BroughtBatches, mesh: Mesh, site: str, now: float
) -> dict[str, Any]:
    """Return why the site is away, its rates, its counters, and what it hears of each other site
    of the group.
    """
    member = task.member
    counters = {**dict.fromkeys((*_OF_TASK, *_OF_RECEIVER), 0), **task.counters}
    if member is not None:
        received = member.receiver.counters
        counters |= {f"receiving_{name}": count for name, count in received.items()}
    heard = {}
    for name in sorted(group_sites(mesh) - {site}):
        cluster_id = mesh.sites[name].cluster_id
        figures = task.heard.of(site_id(cluster_id)) if member is not None else None
        tally = brought.of(cluster_id)
        heard[name] = {
            "s_ago": _ago(None if figures is None else figures.at, now),
            "sent": 0 if figures is None else figures.sent,
            "missing": 0 if figures is None else figures.missing,
            "pulses_alone": 0 if figures is None else figures.pulses_alone,
            "appended": tally.by_group,
            "by_links": tally.by_links,
            "linked_s_ago": _ago(tally.linked_at, now),
        }
    return {
        "away": task.reason,
        "joined_s": None if member is None else _ago(task.heard.since, now),
        "rate": None if member is None else round(member.rate),
        "full_rate": None if mesh.group is None else mesh.group.rate,
        "by_links": sum(one["by_links"] for one in heard.values()),
        **{name.replace(" ", "_"): count for name, count in counters.items()},
        "heard": heard,
    }


def _ago(at: float | None, now: float) -> float | None:
    return None if at is None else round(now - at, 1)
