"""Metrics under the names of release 0.2, without types: served beside the present ones for one
release.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relay.admin.metrics.catalogue import CATALOGUE

_PRESENT = frozenset(metric.name for metric in CATALOGUE)
_OLD = frozenset(metric.old for metric in CATALOGUE if metric.old) | {"isthmus_site_node_pid"}


def old_text(report: Mapping[str, Any]) -> str:
    """Return a report as lines `NAME{LABELS} VALUE`, but for names that have not changed."""
    lines: list[str] = []
    for site, figures in report["sites"].items():
        lines += _numbers(figures, f'site="{site}"', "isthmus_site")
        lines += _slot_numbers(figures, f'site="{site}"')
        lines += _group_numbers(figures.get("group"), f'site="{site}"')
        for link in figures.get("links_in", ()):
            lines += _link_numbers(link, f'from="{link["from"]}",to="{link["to"]}"', "_in")
    for link in report["links"]:
        lines += _link_numbers(link, f'from="{link["from"]}",to="{link["to"]}"', "")
    return "".join(f"{line}\n" for line in sorted(lines))


def _slot_numbers(figures: Mapping[str, Any], labels: str) -> list[str]:
    if "takeovers" not in figures:
        return []
    if "slots" in figures:
        parts = enumerate(figures["slots"])
        return [line for n, own in parts for line in _slot_numbers(own, f'{labels},slot="{n}"')]
    slot = figures.get("slot") or {}
    away_s = slot.get("journal_away_s") or 0
    return [
        *_numbers({**slot, "journal_away_s": away_s} if slot else {}, labels, "isthmus_slot"),
        *_numbers(figures.get("copy", {}), labels, "isthmus_copy"),
    ]


def _group_numbers(group: Mapping[str, Any] | None, labels: str) -> list[str]:
    if group is None:
        return []
    lines = _numbers(group, labels, "isthmus_group")
    for site, figures in group.get("heard", {}).items():
        lines += _numbers(figures, f'{labels},from="{site}"', "isthmus_group_heard")
    return lines


def _link_numbers(link: Mapping[str, Any], labels: str, way: str) -> list[str]:
    lines = _numbers(link, labels, f"isthmus_link{way}")
    for lane, figures in link.get("lanes", {}).items():
        lines += _numbers(figures, f'{labels},lane="{lane}"', f"isthmus_lane{way}")
    return lines


def _numbers(figures: Mapping[str, Any], labels: str, prefix: str) -> list[str]:
    lines = []
    for key, value in figures.items():
        name = f"{prefix}_{key}"
        if isinstance(value, int | float) and not isinstance(value, bool):
            if name in _OLD and name not in _PRESENT:
                lines.append(f"{name}{{{labels}}} {value}")
        elif key == "state":
            is_up = int(value in ("running", "lagging"))
            lines.append(f'{prefix}_up{{{labels},state="{value}"}} {is_up}')
        elif key == "core":
            lines.append(f"{prefix}_native_core{{{labels}}} {int(value == 'native')}")
    return lines
