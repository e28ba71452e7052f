"""Waits between attempts: doubled each time up to a limit, with jitter, so that parties that failed
together do not come back together.
"""

from __future__ import annotations

from collections.abc import Callable

from federation.mesh import RetryRule

CONNECT_FIRST_S = 0.2
CONNECT_MOST_S = 30.0


class Backoff:
    """Doubling delays, jittered between half and the whole. `random` returns numbers in [0, 1)."""

    def __init__(self, first_s: float, most_s: float, random: Callable[[], float]) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._random = random

    def delay_s(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row; 0 after none."""
        if failures <= 0:
            return 0.0
        whole = min(self._most_s, self._first_s * 2.0 ** min(failures - 1, 30))
        return whole * (0.5 + 0.5 * self._random())


def retry_delay_s(rule: RetryRule, attempts: int, random: Callable[[], float]) -> float | None:
    """Return the seconds to wait after failed attempts, or None for a dead letter."""
    if attempts >= rule.max_attempts:
        return None
    return Backoff(rule.backoff_first_s, rule.backoff_most_s, random).delay_s(attempts)


def reconnect_delay_s(failures: int, random: Callable[[], float]) -> float:
    """Return the seconds before reconnecting, `failures` attempts having failed before the last."""
    return Backoff(CONNECT_FIRST_S, CONNECT_MOST_S, random).delay_s(failures + 1)
