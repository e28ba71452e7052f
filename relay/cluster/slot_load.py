"""Load of a slot, as the node that runs the slot measures it and shows it to the others."""

from __future__ import annotations

import math

_SMOOTH_S = 20.0
"""Time over which the rate is a mean; before that nothing is shown."""
_SHOWN_FOR_S, _SHOWN_AGAIN_S = 10.0, 60.0
"""Least and most time between two shows: an entry goes with its session."""
_CHANGE, _CHANGE_S = 0.2, 50
"""Least change that is shown: a share of the rate shown before, and messages a second."""


class SlotLoad:
    """Messages a second that a slot handles: those that are logged, and those delivered."""

    def __init__(self) -> None:
        self.shown: int | None = None
        """Messages a second, as the other nodes know them; None while they were not measured."""
        self._shown_at = 0.0
        self._began: tuple[float, int] | None = None
        self._last = (0.0, 0)
        self._mean = 0.0

    def is_to_be_shown(self, handled: int, now: float) -> bool:
        """Count the messages `handled` up to `now`, in seconds; return True if the other nodes are
        to know what is `shown` from now on.
        """
        if self._began is None:
            self._began = self._last = (now, handled)
        (began, first), (before, last) = self._began, self._last
        if now - began < _SMOOTH_S:
            return False
        if self.shown is None:
            self._mean = (handled - first) / (now - began)
        elif now > before:
            of_the_past = math.exp((before - now) / _SMOOTH_S)
            rate = (handled - last) / (now - before)
            self._mean = of_the_past * self._mean + (1 - of_the_past) * rate
        self._last = (now, handled)
        if self.shown is not None:
            is_new = abs(self._mean - self.shown) >= max(_CHANGE * self.shown, _CHANGE_S)
            if now - self._shown_at < (_SHOWN_FOR_S if is_new else _SHOWN_AGAIN_S):
                return False
        self.shown, self._shown_at = round(self._mean), now
        return True
