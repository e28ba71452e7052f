"""Histogram of delays: bounds, negative delays, and sums of several histograms."""

from __future__ import annotations

from relay.delay_histogram import BOUNDS_S, DelayHistogram, DelaySnapshot


def test_a_delay_counts_in_the_first_bucket_whose_bound_it_does_not_pass() -> None:
    histogram = DelayHistogram()
    histogram.observe(BOUNDS_S[0])
    histogram.observe(BOUNDS_S[0] + 0.001, 3)
    histogram.observe(BOUNDS_S[-1] + 1.0)
    counts, sum_s = histogram.snapshot()
    assert (counts[0], counts[1], counts[-1], sum(counts)) == (1, 3, 1, 5)
    assert sum_s == 4 * BOUNDS_S[0] + 3 * 0.001 + BOUNDS_S[-1] + 1.0


def test_a_delay_by_clocks_that_are_apart_counts_as_none() -> None:
    histogram = DelayHistogram()
    histogram.observe(-2.0, 2)
    assert histogram.snapshot() == DelaySnapshot((2, *[0] * len(BOUNDS_S)), 0.0)


def test_histograms_add_up_and_none_is_an_empty_one() -> None:
    one, other = DelayHistogram(), DelayHistogram()
    one.observe(0.02)
    other.observe(7.0, 2)
    both = DelaySnapshot.total([one.snapshot(), other.snapshot()])
    assert (sum(both.counts), both.sum_s) == (3, 14.02)
    assert sum(DelaySnapshot.total([]).counts) == 0


def test_a_snapshot_stays_as_it_was() -> None:
    histogram = DelayHistogram()
    before = histogram.snapshot()
    histogram.observe(1.0)
    assert sum(before.counts) == 0
