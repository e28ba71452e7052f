"""Percentiles within one per cent, whatever was added how."""

from __future__ import annotations

import math
import random

from isthmus.load.sink import Latencies


def test_percentiles_are_within_one_per_cent() -> None:
    draw = random.Random(5)
    times = [int(draw.lognormvariate(14, 2)) for _ in range(20_000)]
    latencies = Latencies()
    latencies.add(times)
    times.sort()
    for percent in (1, 50, 90, 99, 99.9, 100):
        exact = times[math.ceil(len(times) * percent / 100) - 1] / 1e6
        assert abs(latencies.percentile_ms(percent) - exact) <= 0.01 * exact
    assert latencies.longest_ms == times[-1] / 1e6


def test_of_nothing_there_is_no_percentile() -> None:
    latencies = Latencies()
    latencies.add([])
    assert math.isnan(latencies.percentile_ms(50))
    assert latencies.longest_ms == 0


def test_merged_ones_are_as_if_all_had_been_added_to_one() -> None:
    one, other, both = Latencies(), Latencies(), Latencies()
    one.add([10**6, 2 * 10**6])
    other.add([3 * 10**6])
    both.add([10**6, 2 * 10**6, 3 * 10**6])
    one.merge(other)
    assert (one.count, one.longest_ms) == (both.count, both.longest_ms)
    assert one.percentile_ms(100) == both.percentile_ms(100)
