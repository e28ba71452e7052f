"""How long messages were under way: percentiles within one per cent, in memory that stays."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

_PER_E = 100
"""Buckets a factor of e: each is one per cent wide."""


class Latencies:
    """Of any number of messages. Times go in as nanoseconds and come out as milliseconds."""

    def __init__(self) -> None:
        self.count = 0
        self._longest_ns = 0
        self._buckets: Counter[int] = Counter()

    def add(self, times_ns: Sequence[int]) -> None:
        if not times_ns:
            return
        log = math.log
        self._buckets.update([int(log(time) * _PER_E) if time > 1 else 0 for time in times_ns])
        self.count += len(times_ns)
        self._longest_ns = max(self._longest_ns, max(times_ns))

    def merge(self, other: Latencies) -> None:
        """All of the other's too."""
        self._buckets.update(other._buckets)
        self.count += other.count
        self._longest_ns = max(self._longest_ns, other._longest_ns)

    @property
    def longest_ms(self) -> float:
        """Exactly; 0 of nothing."""
        return self._longest_ns / 1e6

    def percentile_ms(self, percent: float) -> float:
        """The time that so many per cent of the messages took at most; NaN of nothing."""
        if not self.count:
            return math.nan
        rank = max(1, math.ceil(self.count * percent / 100))
        for bucket in sorted(self._buckets):
            rank -= self._buckets[bucket]
            if rank <= 0:
                return min(math.exp((bucket + 0.5) / _PER_E) / 1e6, self.longest_ms)
        raise AssertionError("fewer in the buckets than were counted")
