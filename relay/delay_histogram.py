"""Histogram of delays in fixed buckets, cheap enough for each batch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 300.0, 3600.0)
"""Upper bounds (s, inclusive) of all buckets but the last, which has no bound. More of them cost
each scrape of a hub with hundreds of links.
"""


class DelaySnapshot(NamedTuple):
    """State of a histogram: the number of delays in each bucket, and their sum (s)."""

    counts: tuple[int, ...]
    sum_s: float

    @classmethod
    def total(cls, parts: Iterable[DelaySnapshot]) -> DelaySnapshot:
        """Return the histogram of all delays in some histograms."""
        kept = [*parts, cls((0,) * (len(BOUNDS_S) + 1), 0.0)]
        counts = tuple(map(sum, zip(*(part.counts for part in kept), strict=True)))
        return cls(counts, sum(part.sum_s for part in kept))


class DelayHistogram:
    """Delays since the process began."""

    __slots__ = ("_counts", "_sum_s")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._sum_s = 0.0

    def observe(self, delay_s: float, count: int = 1) -> None:
        """Note a delay (s) of so many messages or batches. A negative delay, by clocks that are
        apart, counts as 0.
        """
        delay_s = max(0.0, delay_s)
        self._counts[bisect_left(BOUNDS_S, delay_s)] += count
        self._sum_s += delay_s * count

    def snapshot(self) -> DelaySnapshot:
        """Return the state at present."""
        return DelaySnapshot(tuple(self._counts), self._sum_s)
