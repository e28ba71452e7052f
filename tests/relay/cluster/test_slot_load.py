"""Load of a slot: a smooth rate that rises soon and falls late, shown step by step."""

from __future__ import annotations

from itertools import pairwise

from relay.cluster.slot_load import SlotLoad


class Measured:
    """Load of a slot, measured every two seconds, and what was shown of it, with the times."""

    def __init__(self) -> None:
        self.load = SlotLoad()
        self.now = self.handled = 0
        self.shown: list[tuple[int, int]] = []

    def go_on(self, seconds: int, rate: int) -> None:
        for _ in range(seconds // 2):
            self.load.measure(self.handled, self.now)
            shown = self.load.shown
            if shown is not None and [rate for _, rate in self.shown[-1:]] != [shown]:
                self.shown.append((self.now, shown))
            self.now += 2
            self.handled += 2 * rate

    @property
    def rate(self) -> int:
        assert self.load.shown is not None
        return self.load.shown


def test_nothing_is_shown_before_the_rate_is_known() -> None:
    measured = Measured()
    measured.go_on(20, 500)
    assert measured.load.shown is None
    measured.go_on(10, 500)
    assert measured.shown == [(20, 500)]


def test_a_slot_that_handles_nothing_is_known_to() -> None:
    measured = Measured()
    measured.go_on(30, 0)
    assert measured.shown == [(20, 0)]


def test_a_higher_rate_is_shown_step_by_step_and_a_steady_one_no_more() -> None:
    measured = Measured()
    measured.go_on(40, 1000)
    measured.go_on(100, 3000)
    times = [at for at, _ in measured.shown]
    assert min(later - at for at, later in pairwise(times)) >= 10
    assert len(times) <= 8
    assert 2500 <= measured.rate <= 3000
    before = measured.shown[:]
    measured.go_on(600, 3000)
    assert measured.shown == before


def test_a_slot_that_was_busy_counts_as_busy_for_minutes() -> None:
    measured = Measured()
    measured.go_on(60, 6000)
    measured.go_on(120, 1000)
    assert measured.rate >= 4800
    measured.go_on(1800, 1000)
    assert measured.rate <= 1500


def test_a_short_burst_hardly_counts() -> None:
    measured = Measured()
    measured.go_on(60, 1000)
    measured.go_on(2, 3000)
    measured.go_on(60, 1000)
    assert max(rate for _, rate in measured.shown) <= 1250
