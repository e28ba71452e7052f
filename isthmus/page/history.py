"""Figures of the last hour, as the page itself has gathered them. Bounded: some 6 KB a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

EVERY_S = 10.0
POINTS = 360
LINK_FIGURES = ("messages_s", "bytes_s", "lag_s", "lag_messages")
SITE_FIGURES = ("delivered_s", "egress", "dead_letters", "quarantine")
_FIGURES = {"links": LINK_FIGURES, "sites": SITE_FIGURES}


class Hour:
    """Ring of samples, one every EVERY_S, of each site and link."""

    def __init__(self) -> None:
        self._times = np.full(POINTS, np.nan)
        self._rings: dict[tuple[str, str], npt.NDArray[np.float64]] = {}
        self._next = 0
        self._due = float("-inf")

    def note(self, view: Mapping[str, Any], now: float) -> None:
        """Keep a sample of a mesh's figures at `now` (seconds since 1970), if one is due."""
        if now < self._due:
            return
        self._due = now + EVERY_S
        at = self._next
        self._next = (at + 1) % POINTS
        self._times[at] = now
        for kind, figures in _FIGURES.items():
            for name, one in view[kind].items():
                ring = self._rings.get((kind, name))
                if ring is None:
                    ring = self._rings[kind, name] = np.full((POINTS, len(figures)), np.nan)
                ring[at] = [_number(one.get(figure)) for figure in figures]
        self._forget_absent(view, at)

    def of(self, kind: str, name: str) -> dict[str, list[float | None]]:
        """Return the samples of a site or link, oldest first: `seconds` since 1970 and a list for
        each figure. Raises KeyError for a name without samples.
        """
        ring = np.roll(self._rings[kind, name], -self._next, axis=0)
        times = np.roll(self._times, -self._next)
        known = ~np.isnan(times)
        found: dict[str, list[float | None]] = {"seconds": times[known].tolist()}
        for column, figure in enumerate(_FIGURES[kind]):
            values = ring[known, column].tolist()
            found[figure] = [None if value != value else value for value in values]
        return found

    def _forget_absent(self, view: Mapping[str, Any], at: int) -> None:
        """Mark absent sites and links, and forget those of which the hour has nothing."""
        for kind, name in list(self._rings):
            if name not in view[kind]:
                self._rings[kind, name][at] = np.nan
                if np.isnan(self._rings[kind, name]).all():
                    del self._rings[kind, name]


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
