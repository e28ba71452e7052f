"""Sections of a process's report: rows of figures, each with the values of the section's labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from relay.admin.metrics.definition import ReportSection

Report = Mapping[str, Any]
Row = tuple[dict[str, str], Report]
"""Labels of the section, and figures by name."""


def rows(section: ReportSection, report: Report) -> Iterator[Row]:
    """Return the rows that a report has of a section."""
    for values, figures in _ROWS[section](report):
        yield dict(zip(section.labels, values, strict=True)), figures


_Rows = Iterable[tuple[tuple[str, ...], Report]]


def _process(report: Report) -> _Rows:
    return [((), report)]


def _sites(report: Report) -> _Rows:
    return [((site,), figures) for site, figures in report["sites"].items()]


def _part(name: str) -> Callable[[Report], _Rows]:
    """Return the way to a part that a site's figures may have."""

    def part(report: Report) -> _Rows:
        return [(site, figures[name]) for site, figures in _sites(report) if figures.get(name)]

    return part


def _slots(report: Report) -> _Rows:
    """Rows of the slots of a node among several of its site, whether the node runs them or not."""
    for (site,), figures in _sites(report):
        if "takeovers" in figures:
            for number, slot in enumerate(figures.get("slots", [figures])):
                yield (site, str(number)), slot


def _held_slots(report: Report) -> _Rows:
    for labels, figures in _slots(report):
        if (slot := figures.get("slot")) is None:
            yield labels, {"held": False}
        else:
            away_s = slot["journal_away_s"] or 0
            yield labels, {**slot, "held": True, "journal_away_s": away_s}


def _copies(report: Report) -> _Rows:
    return [(labels, figures["copy"]) for labels, figures in _slots(report) if "copy" in figures]


def _contents(report: Report) -> _Rows:
    for labels, figures in _slots(report):
        if "content" in figures:
            yield labels, figures["content"]


def _groups(report: Report) -> _Rows:
    for site, group in _part("group")(report):
        yield site, {**group, "up": not group["away"]}


def _heard(report: Report) -> _Rows:
    for (site,), group in _part("group")(report):
        yield from (((site, other), row) for other, row in group.get("heard", {}).items())


def _flows(report: Report) -> _Rows:
    for (site,), figures in _sites(report):
        for (origin, exchange), delays in figures.get("end_to_end", {}).items():
            yield (site, origin, exchange), {"end_to_end": delays}


def _links(report: Report) -> _Rows:
    return [((link["from"], link["to"]), link) for link in report["links"]]


def _receivers(report: Report) -> _Rows:
    for _, figures in _sites(report):
        for link in figures.get("links_in", ()):
            yield (link["from"], link["to"]), link


def _lanes(links: Callable[[Report], _Rows]) -> Callable[[Report], _Rows]:
    """Return the way to the lanes of links."""

    def lanes(report: Report) -> _Rows:
        for ends, link in links(report):
            for lane, figures in link.get("lanes", {}).items():
                yield (*ends, lane), figures

    return lanes


_ROWS: Mapping[ReportSection, Callable[[Report], _Rows]] = {
    ReportSection.PROCESS: _process,
    ReportSection.SITE: _sites,
    ReportSection.LOG: _part("log"),
    ReportSection.SLOT: _held_slots,
    ReportSection.COPY: _copies,
    ReportSection.CONTENT: _contents,
    ReportSection.GROUP: _groups,
    ReportSection.HEARD: _heard,
    ReportSection.FLOW: _flows,
    ReportSection.LINK: _links,
    ReportSection.LANE: _lanes(_links),
    ReportSection.LINK_RECEIVER: _receivers,
    ReportSection.LANE_RECEIVER: _lanes(_receivers),
}
