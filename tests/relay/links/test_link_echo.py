"""What echoes tell of the round trip and of the other side's clock."""

from __future__ import annotations

from relay.links.sender.timing import LinkEcho, clock_difference_ms
from relay.links.wire import NO_NONCE, NO_RUN, Measured, encode_pulse


def test_an_echo_tells_the_round_trip_and_how_far_the_other_clock_is_ahead() -> None:
    echo = LinkEcho()
    assert echo.best is None
    echo.sent(1_000, 50.0)
    assert echo.echoed(1_000, 8_100, 50.2) == 50.2 - 50.0
    assert echo.best == Measured(7_000, 200)


def test_only_the_last_stamp_counts_and_only_once() -> None:
    echo = LinkEcho()
    echo.sent(1_000, 50.0)
    echo.sent(2_000, 51.0)
    assert echo.echoed(1_000, 1_000, 51.1) is None
    assert echo.echoed(2_000, 2_000, 51.5) == 0.5
    assert echo.echoed(2_000, 2_000, 51.6) is None
    echo.sent(3_000, 52.0)
    echo.forget()
    assert echo.echoed(3_000, 3_000, 52.1) is None


def exchange(echo: LinkEcho, at: float, seconds: float, ahead_ms: int) -> Measured | None:
    """Measure once, from `at` on; return what is believed then."""
    sent_ms = round(at * 1000)
    echo.sent(sent_ms, at)
    echo.echoed(sent_ms, sent_ms + round(seconds * 500) + ahead_ms, at + seconds)
    return echo.best


def test_a_much_slower_exchange_is_believed_only_when_the_best_is_old() -> None:
    echo = LinkEcho()
    assert exchange(echo, 0.0, 0.2, 10) == Measured(10, 200)
    assert exchange(echo, 10.0, 0.4, 99) == Measured(10, 200)
    assert exchange(echo, 20.0, 0.24, 12) == Measured(12, 240)
    assert exchange(echo, 900.0, 0.4, 30) == Measured(30, 400)


def test_a_slower_exchange_that_shows_another_clock_is_believed_at_once() -> None:
    echo = LinkEcho()
    assert exchange(echo, 0.0, 0.2, 10) == Measured(10, 200)
    # Half of both round trips, and what clocks drift: that may be the line alone.
    assert exchange(echo, 10.0, 0.4, 370) == Measured(10, 200)
    assert exchange(echo, 20.0, 0.4, 40_000) == Measured(40_000, 400)
    assert exchange(echo, 30.0, 0.8, -2_000) == Measured(-2_000, 800)


def test_of_both_directions_the_quicker_exchange_tells_the_clocks_difference() -> None:
    assert clock_difference_ms(None, None) is None
    assert clock_difference_ms(Measured(700, 90), None) == 700
    # What the neighbour has measured is how far we are ahead of it.
    assert clock_difference_ms(None, Measured(-710, 20)) == 710
    assert clock_difference_ms(Measured(700, 90), Measured(-710, 20)) == 710
    assert clock_difference_ms(Measured(700, 10), Measured(-710, 20)) == 700


def test_a_clock_that_no_pulse_can_tell_of_is_not_believed() -> None:
    echo = LinkEcho()
    for absurd in (2**64 - 1, 2**63 + 2_000):
        echo.sent(1_000, 50.0)
        assert echo.echoed(1_000, absurd, 50.2) is not None
        assert encode_pulse(1, NO_NONCE, NO_RUN, 0, 1_000, echo.best)
    assert echo.best is None
    echo.sent(1_000, 60.0)
    echo.echoed(1_000, 1_000, 60.0)
    assert echo.best == Measured(0, 0)
