"""A row of the comparison: what is measured, and what it is to reach. Values only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from benchmarks.compare.arena import Load
from benchmarks.compare.layout import Layout
from wan_proxy import LineCondition


class Measure(StrEnum):
    """A figure of a way in a case; see `Round`."""

    RATE = "rate"
    MB_S = "mb_s"
    P50 = "p50_ms"
    P99 = "p99_ms"
    RELAY_US = "relay_us"
    BROKER_US = "broker_us"
    RELAY_MB = "relay_mb"


@dataclass(frozen=True, slots=True)
class Case:
    """One load over lines of one condition (None: as they were)."""

    name: str
    load: Load
    condition: LineCondition | None = None


@dataclass(frozen=True, slots=True)
class Bar:
    """Bar for a way in a case: a figure, or its ratio to another way's (of `against_case`, if
    another one). `wanted` is by RabbitMQ's version; either `at_least` or at most.
    """

    case: str
    measure: Measure
    wanted: Mapping[str, float]
    against: str = ""
    against_case: str = ""
    at_least: bool = True
    way: str = "isthmus"

    @property
    def name(self) -> str:
        what = f"{self.case}: {self.way}'s {self.measure}"
        if self.against:
            where = f" in {self.against_case}" if self.against_case else ""
            what += f" over {self.against}'s{where}"
        return what


def judged(what: str, reached: float, wanted: float | None, *, at_least: bool) -> dict[str, Any]:
    """A bar as results have it."""
    return {
        "what": what,
        "reached": reached,
        "wanted": wanted,
        "at_least": at_least,
        "ok": None if wanted is None else (reached >= wanted if at_least else reached <= wanted),
    }


def both(old: float, new: float | None = None) -> Mapping[str, float]:
    """Return the figure wanted on RabbitMQ 3.10, and on 4.0 and 4.3 (`new`, or the same)."""
    on_4 = old if new is None else new
    return {"3.10": old, "4.0": on_4, "4.3": on_4}


@dataclass(frozen=True, slots=True)
class Row:
    """`ways` are names that `ways.make` knows. `quick`: as QUICK=1 runs it; None: not at all.
    `warm_up`: messages that each way carries before its first round, at most.
    """

    name: str
    title: str
    layout: Callable[[], Layout]
    ways: tuple[str, ...]
    cases: Sequence[Case]
    bars: Sequence[Bar] = ()
    quick: Sequence[Case] | None = None
    floor: bool = False
    warm_up: int = 3000
