"""Load of a slot, as the node that runs the slot measures it and shows it to the others."""

from __future__ import annotations

import math

_RISES_S, _FALLS_S = 20.0, 600.0
"""Time over which the rate is a mean, as it rises and as it falls: a slot that was busy lately will
be again, and each move of a slot costs some seconds. Nothing is shown before `_RISES_S`.
"""
_SHOWN_FOR_S = 10.0
"""Least time between two rates that are shown."""
_CHANGE, _CHANGE_S = 0.2, 50
"""Least change that is shown: a share of the rate shown before, and messages a second."""


class SlotLoad:
    """Messages a second that a slot handles: those that are logged, and those delivered."""

    def __init__(self) -> None:
        self.shown: int | None = None
        """Messages a second, for the other nodes to know; None while they are not measured."""
        self._shown_at = 0.0
        self._began: tuple[float, int] | None = None
        self._last = (0.0, 0)
        self._mean = 0.0

    def measure(self, handled: int, now: float) -> None:
        """Count the messages `handled` up to `now`, in seconds."""
        if self._began is None:
            self._began = self._last = (now, handled)
        (began, first), (before, last) = self._began, self._last
        if now - began < _RISES_S:
            return
        if self.shown is None:
            self._mean = (handled - first) / (now - began)
        elif now > before:
            rate = (handled - last) / (now - before)
            slowness_s = _RISES_S if rate > self._mean else _FALLS_S
            of_the_past = math.exp((before - now) / slowness_s)
            self._mean = of_the_past * self._mean + (1 - of_the_past) * rate
        self._last = (now, handled)
        if self.shown is not None:
            change = abs(self._mean - self.shown)
            is_new = change >= max(_CHANGE * self.shown, _CHANGE_S)
            if not is_new or now - self._shown_at < _SHOWN_FOR_S:
                return
        self.shown, self._shown_at = round(self._mean), now
