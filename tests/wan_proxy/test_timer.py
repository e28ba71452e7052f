"""Timers against a loop whose clock stands still."""

from __future__ import annotations

from typing import Any, cast

import pytest

from wan_proxy.direction import call_not_before


class StandingLoop:
    """Says it is 10 s, and keeps what it is asked to wait."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def time(self) -> float:
        return 10.0

    def call_later(self, wait: float, callback: object) -> None:
        self.waits.append(wait)


@pytest.mark.parametrize(
    ("when", "wait"), [(10.0003, 0.001), (10.0012, 0.002), (10.25, 0.25), (10.0, 0), (9.0, 0)]
)
def test_a_wait_is_whole_milliseconds_and_never_too_short(when: float, wait: float) -> None:
    loop = StandingLoop()
    call_not_before(cast(Any, loop), when, lambda: None)
    assert loop.waits == [pytest.approx(wait)]
