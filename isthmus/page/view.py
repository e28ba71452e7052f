"""Figures of a mesh as the page shows them, from a status report. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from relay.log.open_gap import OpenGap

RATE_OVER_S = 10.0
"""Time over which rates are taken: batches are acknowledged by jerks."""
MOST_TEXT = 2000
"""Characters of a reason, which may quote a foreign broker."""
MOST_LINES = 20
"""Lines on what a gap lacks."""
_SITE_FIGURES = {
    "egress": "egress_messages",
    "undelivered": "undelivered_messages",
    "delivered": "delivered",
    "duplicates": "duplicates",
    "redelivered": "redelivered",
    "unrouted": "unrouted",
    "expired": "expired",
    "deferred": "deferred_waiting",
    "dead_letters": "dead_letters_waiting",
    "quarantine": "quarantine_waiting",
}
_LINK_FIGURES = {
    "lag_s": "lag_seconds",
    "lag_messages": "lag_messages",
    "lag_bytes": "lag_bytes",
    "max_rate": "max_rate",
    "window_used": "window_used_bytes",
    "window": "window_bytes",
    "round_trip_s": "round_trip_s",
    "clock_ahead_ms": "clock_ahead_ms",
}


class CounterRates:
    """Rates of counters that only grow, over the last RATE_OVER_S. A counter that has shrunk is of
    a new process and begins anew.
    """

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[float, float]]] = {}

    def of(self, name: str, count: float | None, now: float) -> float | None:
        """Note a counter at `now` (seconds); return its rate a second, None until known."""
        if count is None:
            self._samples.pop(name, None)
            return None
        samples = self._samples.setdefault(name, deque())
        if samples and count < samples[-1][1]:
            samples.clear()
        samples.append((now, count))
        while len(samples) > 2 and samples[1][0] <= now - RATE_OVER_S:
            samples.popleft()
        (since, before), passed_s = samples[0], now - samples[0][0]
        return (count - before) / passed_s if passed_s > 0 and since < now else None


def mesh_view(
    content: Mapping[str, Any], rates: CounterRates, now: float, name_of: Callable[[str], str] = str
) -> dict[str, Any]:
    """Return the page's figures: {"mesh", "revision", "notes", "sites": {name: ...}, "links":
    {"from-to": ...}}. `content` is a status report, `now` in seconds; `name_of` gives a site's name
    for its cluster ID.
    """
    sites = {
        name: _site_view(site, rates.of(f"site {name}", site.get("delivered"), now), name_of)
        for name, site in content["sites"].items()
    }
    links = {}
    for link in content["links"]:
        name = f"{link['from']}-{link['to']}"
        links[name] = {
            "from": link["from"],
            "to": link["to"],
            **_link_view(link),
            "messages_s": _round(rates.of(f"messages {name}", link.get("acked_messages"), now)),
            "bytes_s": _round(rates.of(f"bytes {name}", link.get("acked_bytes"), now)),
            "lanes": {lane: _link_view(own) for lane, own in link.get("lanes", {}).items()},
        }
    notes = [_bounded(note) for note in content.get("notes", ())]
    return {
        "mesh": content["mesh"],
        "revision": content["revision"],
        "notes": notes,
        "sites": sites,
        "links": links,
    }


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a reader of `before` needs to have `after`: changed sites and links, names of
    those that are gone, and the other fields.
    """
    found = {key: value for key, value in after.items() if key not in ("sites", "links")}
    for kind in ("sites", "links"):
        found[kind] = {
            name: one for name, one in after[kind].items() if before[kind].get(name) != one
        }
        found[f"gone_{kind}"] = [name for name in before[kind] if name not in after[kind]]
    return found


def _site_view(
    site: Mapping[str, Any], rate: float | None, name_of: Callable[[str], str]
) -> dict[str, Any]:
    return {
        "state": site["state"],
        "reason": _bounded(site.get("reason") or ""),
        **{name: site.get(figure) for name, figure in _SITE_FIGURES.items()},
        "delivered_s": _round(rate),
        "troubles": list(_troubles(site)),
        "gaps": [_gap_view(gap, name_of) for gap in site.get("gaps", ())],
        "nodes": {
            name: {"state": node["state"], "reason": _bounded(node["reason"])}
            for name, node in site.get("nodes", {}).items()
        },
    }


def _link_view(link: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "state": link["state"],
        "reason": _bounded(link.get("reason") or ""),
        **{name: link.get(figure) for name, figure in _LINK_FIGURES.items()},
    }


def _troubles(site: Mapping[str, Any]) -> list[str]:
    """Return lines on parts of the site that do not go on while its state may be `running`."""
    lines = [f"{flow} stands: {why}" for flow, why in site.get("standing_flows", {}).items()]
    lines += [
        f"{flow} tries again while later messages go on: {why}"
        for flow, why in site.get("deferring_flows", {}).items()
    ]
    lines += [
        f"egress of {exchange}: {why}"
        for exchange, why in site.get("waiting_exchanges", {}).items()
    ]
    lines += [
        f"takes nothing from {neighbour}: {why}"
        for neighbour, why in site.get("not_understood", {}).items()
    ]
    if site.get("ledger_failure"):
        lines.append(f"the ledger is not written: {site['ledger_failure']}")
    return [_bounded(line) for line in lines]


def _gap_view(gap: Mapping[str, Any], name_of: Callable[[str], str]) -> dict[str, Any]:
    """Return a gap's ID, its stopped stage, and lines on what is missing."""
    read = OpenGap.from_json(gap)
    missing = read.missing(name_of)
    lines = missing[:MOST_LINES]
    if len(missing) > MOST_LINES:
        lines.append(f"and {len(missing) - MOST_LINES:,} lines more: `isthmus accept-gap` has all")
    return {
        "id": read.id,
        "stage": read.key,
        "since_ms": read.since_ms,
        "messages": read.messages,
        "missing": lines,
    }


def _bounded(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]} ..."


def _round(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 1)
