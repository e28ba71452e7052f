"""How long the log has held what a receiver lacks."""

from __future__ import annotations

from relay.links.metrics import AppendTimes


def a_message_a_second(seconds: int) -> AppendTimes:
    times = AppendTimes()
    for second in range(seconds):
        times.note(second, float(second))
    return times


def test_no_lag_has_no_age() -> None:
    assert a_message_a_second(10).age(9, 0, 100.0) == 0.0
    assert AppendTimes().age(5, 5, 100.0) == 0.0


def test_the_age_is_that_of_the_oldest_message_that_is_missing() -> None:
    times = a_message_a_second(100)
    assert times.age(99, 1, 100.0) == 2.0
    assert times.age(99, 50, 100.0) == 51.0


def test_what_was_there_at_the_start_is_as_old_as_the_start_even_if_nothing_came_since() -> None:
    times = AppendTimes()
    for second in range(60):
        times.note(0, float(second))
    assert times.age(0, 1000, 60.0) == 60.0
    assert times.age(0, 0, 60.0) == 0.0


def test_a_quiet_hour_is_not_counted_to_what_came_after_it() -> None:
    times = AppendTimes()
    for second in range(3600):
        times.note(7, float(second))
    times.note(8, 3600.0)
    assert times.age(8, 1, 3610.0) == 11.0


def test_old_lags_are_told_more_coarsely_in_bounded_memory() -> None:
    times = a_message_a_second(50_000)
    for lag in (40_000, 20_000, 3_000, 300, 30, 3):
        assert 0 <= times.age(49_999, lag, 50_000.0) - lag <= lag / 16 + 2
    assert len(times._times) <= 2048
