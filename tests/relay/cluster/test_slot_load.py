"""Load of a slot: a smooth rate, shown seldom, and again where an entry may be gone."""

from __future__ import annotations

from itertools import pairwise

from relay.cluster.slot_load import SlotLoad


class Measured:
    """Load of a slot, looked at every two seconds, and what was shown of it, with the times."""

    def __init__(self) -> None:
        self.load = SlotLoad()
        self.now = self.handled = 0
        self.shown: list[tuple[int, int | None]] = []

    def go_on(self, seconds: int, rate: int) -> None:
        for _ in range(seconds // 2):
            if self.load.is_to_be_shown(self.handled, self.now):
                self.shown.append((self.now, self.load.shown))
            self.now += 2
            self.handled += 2 * rate


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


def test_a_new_rate_is_shown_step_by_step_and_a_steady_one_once_a_minute() -> None:
    measured = Measured()
    measured.go_on(40, 1000)
    measured.go_on(200, 3000)
    times = [at for at, _ in measured.shown]
    assert min(later - at for at, later in pairwise(times)) >= 10
    assert len(times) <= 8
    assert measured.load.shown is not None
    assert 2500 <= measured.load.shown <= 3000
    before = len(times)
    measured.go_on(180, 3000)
    assert len(measured.shown) - before == 3


def test_a_short_burst_hardly_counts() -> None:
    measured = Measured()
    measured.go_on(60, 1000)
    measured.go_on(2, 3000)
    measured.go_on(60, 1000)
    assert max(shown or 0 for _, shown in measured.shown) <= 1250
