"""Comparison of what the sites of a multicast group hear of each other, by their reports. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rich.markup import escape
from rich.table import Table

from federation.lanes import show_rate
from federation.wording import few
from isthmus.display import table_of

UNHEARD_S = 30.0
"""Silence after which a site counts as not heard: six of the datagrams that it sends at rest."""
LEAST_PULSES = 8
"""Pulses that tell of further frames, without a piece of these, after which only small datagrams
come through: chance takes fewer in turn.
"""

SiteReports = Mapping[str, Mapping[str, Any]]


class UnheardSites(NamedTuple):
    """Sites of which one site hears nothing by the group."""

    site: str
    others: tuple[str, ...]
    least_s: float
    """Shortest silence of them, as far as the site was there to hear."""


def is_member(report: Mapping[str, Any]) -> bool:
    """Return True if the site's node is in the group now."""
    group = report.get("group")
    return group is not None and not group["away"]


def heard_by(report: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Return the figures of what a member hears, by site; none of a site that is away."""
    found: Mapping[str, Mapping[str, Any]] = report["group"].get("heard", {})
    return found if is_member(report) else {}


def unheard_sites(sites: SiteReports, *, publishing: bool) -> Iterator[UnheardSites]:
    """Yield the sites that do not hear others which are in the group; with `publishing` only others
    of which links bring what the group should.
    """
    for name, report in sites.items():
        if not _may_hear(report):
            continue
        silent = {
            other: _silent_s(report, figures)
            for other, figures in heard_by(report).items()
            if _may_be_heard(sites.get(other, {}))
            and (not publishing or _is_within(figures["linked_s_ago"]))
        }
        unheard = {other: silence_s for other, silence_s in silent.items() if silence_s > UNHEARD_S}
        if unheard:
            yield UnheardSites(name, tuple(unheard), min(unheard.values()))


def only_small_come(sites: SiteReports) -> Iterator[tuple[str, list[str]]]:
    """Yield the sites to which only small datagrams of certain others come, with these."""
    for name, report in sites.items():
        if _may_hear(report):
            others = [
                other
                for other, figures in heard_by(report).items()
                if _is_within(figures["s_ago"]) and figures["pulses_alone"] >= LEAST_PULSES
            ]
            if others:
                yield name, others


def lost_part(figures: Mapping[str, Any]) -> float:
    """Return the part of another's datagrams that got lost lately."""
    return float(figures["missing"] / figures["sent"]) if figures["sent"] else 0.0


def _is_within(seconds: float | None) -> bool:
    return seconds is not None and seconds <= UNHEARD_S


def _may_hear(report: Mapping[str, Any]) -> bool:
    return is_member(report) and report["group"].get("joined_s") is not None


def _may_be_heard(report: Mapping[str, Any]) -> bool:
    """Return False of a site whose node is known not to be in the group long enough to be heard."""
    if "group" in report:
        return _may_hear(report) and report["group"]["joined_s"] > UNHEARD_S
    return report.get("state") == "unknown"


def _silent_s(report: Mapping[str, Any], figures: Mapping[str, Any]) -> float:
    """Return the seconds for which a member has not heard another."""
    return float(report["group"]["joined_s"] if figures["s_ago"] is None else figures["s_ago"])


def group_notes(sites: SiteReports) -> list[str]:
    """Return lines on what the group does not bring, for `isthmus status`."""
    away: dict[str, list[str]] = {}
    for name, report in sites.items():
        if "group" in report and not is_member(report):
            away.setdefault(report["group"]["away"], []).append(name)
    notes = [
        f"the multicast group does without {few(names)}, where links bring all: {why}"
        for why, names in away.items()
    ]
    alike: dict[tuple[str, ...], list[UnheardSites]] = {}
    for unheard in unheard_sites(sites, publishing=True):
        alike.setdefault(unheard.others, []).append(unheard)
    for others, found in alike.items():
        notes.append(
            f"nothing of {few(list(others))} has come by the multicast group to"
            f" {few([one.site for one in found])} for {min(one.least_s for one in found):.0f} s,"
            " and links bring these batches: `isthmus doctor` says what to look at"
        )
    return notes + [
        f"only small datagrams of {few(others)} come to {name} by the multicast group, and links"
        " bring the batches: `isthmus doctor` says what to look at"
        for name, others in only_small_come(sites)
    ]


def group_tables(sites: SiteReports) -> list[Table]:
    """Return the table of the group; none where no site reports of one."""
    headings = ("site", "hears", ">s ago", ">lost", ">mended", ">by group", ">by links", ">rate")
    table = table_of("multicast group", *headings)
    for name, report in sites.items():
        if is_member(report):
            table.add_row(*map(escape, (name, *_row(report))))
        elif "group" in report:
            table.add_row(escape(name), "away", *[""] * (len(headings) - 2))
    return [table] if table.row_count else []


def _row(report: Mapping[str, Any]) -> list[str]:
    group, heard = report["group"], heard_by(report)
    ages = [figures["s_ago"] for figures in heard.values() if _is_within(figures["s_ago"])]
    unheard = [name for name, figures in heard.items() if not _is_within(figures["s_ago"])]
    missing, sent = (sum(figures[one] for figures in heard.values()) for one in ("missing", "sent"))
    return [
        f"{len(ages)} of {len(heard)}, not {few(unheard)}" if unheard else f"all {len(heard)}",
        f"{max(ages):.1f}" if ages else "",
        f"{100 * missing / sent:.1f} %" if sent else "",
        *(f"{group[one]:,}" for one in ("receiving_repaired", "appended", "by_links")),
        _rate(group["rate"], group["full_rate"]),
    ]


def _rate(rate: float | None, full: float) -> str:
    """Return the present rate, beside the full one if it is another."""
    if rate is None:
        return ""
    shown = show_rate(round(rate))
    return shown if rate >= full else f"{shown} of {show_rate(round(full))}"
