"""A timeline as what can be drawn: bars, strips and curves in percent of the width. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.schedule import KINDS, logs_site
from tests.chaos.timeline import Sample, Strike

TONES: Mapping[str, str] = {
    "running": "good",
    "starting": "known",
    "lagging": "known",
    "blocked": "open",
    "stalled": "open",
    "paused": "known",
}
"""Of a state as status has it; of all others: bad."""
CURVE_HIGH = 100.0
TICKS = 10


@dataclass(frozen=True, slots=True)
class Piece:
    """Something that lasted; `left` and `width` in percent of the time shown."""

    left: float
    width: float
    tone: str
    label: str
    told: str


@dataclass(frozen=True, slots=True)
class Row:
    """A site, or a pair of sites, over time."""

    name: str
    faults: list[Piece]
    states: list[tuple[str, list[Piece]]]
    """What status said, of the site or of the link each way, and of which one."""


@dataclass(frozen=True, slots=True)
class Scale:
    """From moments in seconds to percent."""

    first_s: float
    last_s: float

    def at(self, moment_s: float) -> float:
        part = (moment_s - self.first_s) / max(self.last_s - self.first_s, 0.001)
        return round(100 * min(max(part, 0.0), 1.0), 3)

    def ticks(self) -> list[tuple[float, str]]:
        """Where to write which time."""
        step_s = _round((self.last_s - self.first_s) / TICKS)
        first = math.ceil(self.first_s / step_s)
        times = [n * step_s for n in range(first, int(self.last_s / step_s) + 1)]
        return [(self.at(time), clock(time)) for time in times]


def clock(moment_s: float) -> str:
    """Minutes and seconds."""
    whole = round(abs(moment_s))
    return f"{'-' if moment_s < 0 else ''}{whole // 60}:{whole % 60:02}"


def _round(step_s: float) -> float:
    """A step that people count in, and no smaller."""
    return next((s for s in (5, 10, 15, 30, 60, 120, 300) if s >= step_s), 600)


def rows(
    sites: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    strikes: Iterable[Strike],
    samples: Sequence[Sample],
    scale: Scale,
) -> Iterator[Row]:
    """One for each site, then one for each pair."""
    struck = list(strikes)
    for site in sites:
        yield Row(
            site,
            [_bar(one, scale) for one in struck if site in log_of(one) or one.fault.where == site],
            [(site, strip(site, samples, scale))],
        )
    for here, there in pairs:
        yield Row(
            f"{here}-{there}",
            [_bar(one, scale) for one in struck if one.fault.where == f"{here}-{there}"],
            [
                (f"{a}-{b}", strip(f"{a}-{b}", samples, scale))
                for a, b in ((here, there), (there, here))
            ],
        )


def log_of(strike: Strike) -> tuple[str, ...]:
    """Whose log it struck, besides the line that it cut."""
    fault = strike.fault
    if KINDS[fault.kind].on != "mesh":
        return ()
    return (logs_site(fault.where, fault.detail),)


def _bar(strike: Strike, scale: Scale) -> Piece:
    fault = strike.fault
    began_s = fault.at_s if strike.began_s is None else strike.began_s
    healed_s = began_s if strike.healed_s is None else strike.healed_s
    tone = "bad" if strike.trouble else {"site": "open", "link": "known"}.get(_on(strike), "bad")
    told = f"#{fault.number} {fault.kind} {fault.where} {fault.detail}".rstrip()
    until = f" to {clock(healed_s)}" if fault.lasts_s else ""
    left = scale.at(began_s)
    width = round(scale.at(healed_s) - left, 3)
    trouble = f"; {strike.trouble}" if strike.trouble else ""
    return Piece(left, width, tone, fault.kind, f"{told}, {clock(began_s)}{until}{trouble}")


def _on(strike: Strike) -> str:
    if strike.fault.kind in ("kill-node", "kill-broker", "hang-node", "hang-broker"):
        return "process"
    return KINDS[strike.fault.kind].on


def strip(part: str, samples: Sequence[Sample], scale: Scale) -> list[Piece]:
    """What status said of a site or a link, each stretch of one state as a piece."""
    pieces: list[Piece] = []
    begun: tuple[float, str] | None = None
    for sample in [*samples, None]:
        state = None if sample is None else sample.states.get(part, "unknown")
        if begun is not None and state != begun[1]:
            end_s = samples[-1].at_s if sample is None else sample.at_s
            left = scale.at(begun[0])
            told = f"{part}: {begun[1]}, {clock(begun[0])} to {clock(end_s)}"
            width = round(scale.at(end_s) - left, 3)
            pieces.append(Piece(left, width, TONES.get(begun[1], "bad"), begun[1], told))
            begun = None
        if begun is None and sample is not None and state is not None:
            begun = (sample.at_s, state)
    return pieces


def _height(part: float) -> float:
    """By the root: what comes at once after a cut is many times what comes day by day."""
    return round(CURVE_HIGH * (1 - math.sqrt(part)), 2)


def most_per_s(samples: Iterable[Sample]) -> float:
    """The highest rate of any site."""
    rates = (rate for sample in samples for rate in sample.delivered_per_s.values())
    return max((rate for rate in rates if rate is not None), default=0.0) or 1.0


def curves(site: str, samples: Sequence[Sample], scale: Scale, most: float) -> list[str]:
    """Polygons of the site's delivery rate, as SVG has points: 100 wide and high, upside down. One
    for each stretch in which its node answered.
    """
    found: list[str] = []
    stretch: list[tuple[float, float]] = []
    for sample in [*samples, None]:
        rate = None if sample is None else sample.delivered_per_s.get(site)
        if sample is not None and rate is not None:
            stretch.append((scale.at(sample.at_s), _height(rate / most)))
        elif stretch:
            ends = [(stretch[0][0], CURVE_HIGH), *stretch, (stretch[-1][0], CURVE_HIGH)]
            found.append(" ".join(f"{x:g},{y:g}" for x, y in ends))
            stretch = []
    return found
