"""Definition of a metric: name, type, labels and help, and the figure of the report behind it."""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class MetricType(StrEnum):
    """Types of metrics, by the names that prometheus-client has for them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    STATE_SET = "stateset"
    """One series for each state: 1 for the present state, 0 for the others."""
    INFO = "info"
    """Always 1; the labels hold versions and names."""
    HISTOGRAM = "histogram"


class ReportSection(StrEnum):
    """Parts of the report. A section has one or more rows, and a row a value for each label."""

    PROCESS = "process"
    SITE = "site"
    LOG = "log"
    SLOT = "slot"
    COPY = "copy"
    CONTENT = "content"
    GROUP = "group"
    HEARD = "heard"
    FLOW = "flow"
    LINK = "link"
    LANE = "lane"
    LINK_RECEIVER = "link receiver"
    LANE_RECEIVER = "lane receiver"

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the labels of each row."""
        return _LABELS[self]


_LABELS = {
    ReportSection.PROCESS: (),
    ReportSection.SITE: ("site",),
    ReportSection.LOG: ("site",),
    ReportSection.SLOT: ("site", "slot"),
    ReportSection.COPY: ("site", "slot"),
    ReportSection.CONTENT: ("site", "slot"),
    ReportSection.GROUP: ("site",),
    ReportSection.HEARD: ("site", "from"),
    ReportSection.FLOW: ("site", "origin", "exchange"),
    ReportSection.LINK: ("from", "to"),
    ReportSection.LANE: ("from", "to", "lane"),
    ReportSection.LINK_RECEIVER: ("from", "to"),
    ReportSection.LANE_RECEIVER: ("from", "to", "lane"),
}

Read = Callable[[Any], float | None]
"""Turns a figure of the report into a value; None: there is none at present."""


def number(figure: float | None) -> float | None:
    """Return the figure itself."""
    return figure


def known(figure: float | None) -> float | None:
    """Return the figure, or None for -1, by which a report shows an unknown count."""
    return None if figure is None or figure < 0 else figure


def count(figure: Sized | None) -> float | None:
    """Return the number of elements."""
    return None if figure is None else len(figure)


def flag(figure: object) -> float:
    """Return 1 for a figure that is there and neither false nor empty, else 0."""
    return float(bool(figure))


def milliseconds(figure: float | None) -> float | None:
    """Return the figure in seconds."""
    return None if figure is None else figure / 1000


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """One metric. Raises ValueError for a name that its type does not allow."""

    name: str
    type: MetricType
    section: ReportSection
    key: str
    """Name of the figure in the section's rows."""
    help: str
    read: Read = number
    by: str = ""
    """Label for the keys of a figure that is a dictionary of counts; empty for a single value."""
    states: tuple[str, ...] = ()
    """Values of a state set."""
    info: tuple[str, ...] = ()
    """Further figures that an info has as labels, beside `key`."""
    old: str = ""
    """Name in the former release, served beside the present one; empty: the same or none."""

    def __post_init__(self) -> None:
        ends = {MetricType.COUNTER: "_total", MetricType.INFO: "_info"}
        for type, end in ends.items():
            if self.name.endswith(end) != (self.type is type):
                raise ValueError(f"{self.name}: a metric ends in {end} if its type is {type.value}")

    @property
    def family(self) -> str:
        """Name without the ending that the exposition adds for the type."""
        return self.name.removesuffix("_total").removesuffix("_info")

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of all labels: of the section, and of the metric itself."""
        own = {
            MetricType.STATE_SET: (self.name,),
            MetricType.INFO: (self.key, *self.info),
        }
        return self.section.labels + own.get(self.type, (self.by,) if self.by else ())
