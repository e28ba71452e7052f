"""Waits rounded to common ticks, so that many of them end together.

A process with many sites has thousands of small waits that need no millisecond precision. Each wait
that ends alone wakes the process for itself, which costs several times the work then done.
"""

from __future__ import annotations

import math

TICK_S = 0.25


def about(seconds: float, now: float) -> float:
    """Return the wait that replaces `seconds` from `now` (loop time), to end on a common tick at
    most half a tick earlier or later. Waits under two ticks are returned unchanged.
    """
    if seconds < 2 * TICK_S:
        return seconds
    return round((now + seconds) / TICK_S) * TICK_S - now


def no_less_than(seconds: float, now: float) -> float:
    """Return a wait as `about` does, but never a shorter one: up to a tick longer."""
    if seconds < 2 * TICK_S:
        return seconds
    return math.ceil((now + seconds) / TICK_S) * TICK_S - now
