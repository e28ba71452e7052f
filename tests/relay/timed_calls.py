"""A heap of calls, each with its time: the virtual time of what knows no event loop."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


class VirtualTime:
    """Calls in order of their time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = count()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []

    def call_later(self, delay: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._calls, (self.now + delay, next(self._order), call))

    def run_until(self, limit: float, done: Callable[[], bool] | None = None) -> bool:
        """Run up to `limit`; stop earlier, and say so, when `done`."""
        while True:
            if done is not None and done():
                return True
            if not self._calls or self._calls[0][0] > limit:
                self.now = max(self.now, limit)
                return False
            self.now, _, call = heapq.heappop(self._calls)
            call()

    @property
    def wall_ms(self) -> int:
        return 1_700_000_000_000 + round(self.now * 1000)


class Alarm:
    """Rings at the earliest time that it was set to."""

    def __init__(self, time: VirtualTime, ring: Callable[[], None]) -> None:
        self._time = time
        self._ring = ring
        self._due: float | None = None

    def set(self, due: float | None) -> None:
        """Ring then, too; None asks for nothing."""
        if due is None or (self._due is not None and self._due <= due):
            return
        self._due = due
        self._time.call_later(max(0.0, due - self._time.now), lambda: self._call(due))

    def _call(self, due: float) -> None:
        if self._due == due:
            self._due = None
        self._ring()
