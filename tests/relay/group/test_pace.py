"""Pace of a site in its group: no more than the rate, less where a site cannot follow."""

from __future__ import annotations

from relay.group.pace import GroupPace

RATE = 1_000_000.0
DATAGRAM = 1000
TOKYO, LIMA = b"tokyo", b"lima"


def send(pace: GroupPace, begin: float, seconds: float, *, repair: bool = False) -> int:
    """Send as much as the pace allows; return the bytes."""
    sent, now = 0, begin
    while now < begin + seconds:
        while pace.may_send(now, repair=repair):
            pace.sent(DATAGRAM, repair=repair)
            sent += DATAGRAM
        now += pace.wait_s(repair=repair)
    return sent


def test_the_rate_is_kept_within_a_twentieth() -> None:
    pace = GroupPace(RATE, 0.0)
    assert 0.95 * 5 * RATE <= send(pace, 0.0, 5.0) <= 1.05 * 5 * RATE


def test_repairs_take_a_quarter_at_most() -> None:
    pace = GroupPace(RATE, 0.0)
    assert send(pace, 0.0, 5.0, repair=True) <= 1.05 * 5 * RATE / 4


def test_the_rate_falls_while_a_site_asks_for_much_and_recovers() -> None:
    pace = GroupPace(RATE, 0.0)
    for second in range(10):
        sent = send(pace, float(second), 1.0)
        pace.asked(TOKYO, sent // 4)
    assert pace.rate == RATE / 16
    send(pace, 10.0, 25.0)
    assert pace.rate == RATE


def test_what_many_sites_ask_for_here_and_there_slows_nobody() -> None:
    pace = GroupPace(RATE, 0.0)
    for second in range(10):
        sent = send(pace, float(second), 1.0)
        for site in (TOKYO, LIMA, b"oslo", b"cork"):
            pace.asked(site, sent // 20)
    assert pace.rate == RATE


def test_of_few_datagrams_a_tenth_that_one_site_lacks_slows_nobody() -> None:
    pace = GroupPace(RATE, 0.0)
    for second in range(60):
        if second % 2:
            pace.asked(TOKYO, 6 * DATAGRAM)
        else:
            for _ in range(51):
                pace.sent(DATAGRAM)
        pace.may_send(float(second))
    assert pace.rate == RATE
