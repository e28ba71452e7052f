"""Waits that end together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relay import ticks

times = st.floats(0, 1e7)


@given(times, st.floats(0.5, 100))
def test_long_waits_end_on_a_tick_about_when_they_should(now: float, seconds: float) -> None:
    wait = ticks.about(seconds, now)
    assert abs(wait - seconds) <= ticks.TICK_S / 2 + 1e-6
    assert (now + wait) / ticks.TICK_S == _about_whole((now + wait) / ticks.TICK_S)


@given(times, st.floats(0.5, 100))
def test_what_is_due_is_never_looked_at_before_it_is(now: float, seconds: float) -> None:
    wait = ticks.no_less_than(seconds, now)
    assert -1e-6 <= wait - seconds <= ticks.TICK_S + 1e-6


@given(times)
def test_what_ended_a_little_late_goes_on_at_its_own_pace(now: float) -> None:
    tick = round(now / ticks.TICK_S) * ticks.TICK_S
    assert abs(ticks.about(0.5, tick + 0.003) - 0.497) < 1e-6


@given(times, st.floats(0, 0.499))
def test_short_waits_stay_what_they_are(now: float, seconds: float) -> None:
    assert ticks.about(seconds, now) == ticks.no_less_than(seconds, now) == seconds


def _about_whole(number: float) -> float:
    assert abs(number - round(number)) < 1e-5
    return number
