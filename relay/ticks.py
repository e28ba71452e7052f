"""Waits that may end a little sooner or later, and so together.

A process with many sites has thousands of small waits that nobody needs to the millisecond. Each
that ends alone wakes the process for itself, which costs several times what there is to do then.
"""

from __future__ import annotations

import math

TICK_S = 0.25


def about(seconds: float, now: float) -> float:
    """How long to wait instead of `seconds` from `now` on (the loop's time), to end on a tick that
    all share: half a tick more or less at most. Waits under two ticks stay what they are.
    """
    if seconds < 2 * TICK_S:
        return seconds
    return round((now + seconds) / TICK_S) * TICK_S - now


def no_less_than(seconds: float, now: float) -> float:
    """As `about`, but never sooner: up to a tick more."""
    if seconds < 2 * TICK_S:
        return seconds
    return math.ceil((now + seconds) / TICK_S) * TICK_S - now
