"""What a link's sender learns from the echoes of its asks and pulses: round trip, clocks. Pure.

The receiver says back the last wall clock that it was sent, and its own. Only the echo of the
stamp that was sent last counts, once.
"""

from __future__ import annotations

from relay.links.wire import Measured

_MEASURE_AGAIN_S = 600.0
_MOST_AHEAD_MS = 1 << 48
"""No clock is 9,000 years ahead, and a PULSE has 64 bits for it."""


def clock_difference_ms(out: Measured | None, back: Measured | None) -> int | None:
    """A neighbour's clock minus ours, in ms: of what our sender has measured (`out`), and what the
    neighbour's sender has measured of us (`back`), the one of the shorter round trip. None: there
    is neither.
    """
    told = [(out.round_trip_ms, out.ahead_ms)] if out else []
    if back is not None:
        told.append((back.round_trip_ms, -back.ahead_ms))
    return min(told)[1] if told else None


class LinkEcho:
    """One link's. `best` outlives the sessions, a stamp does not."""

    def __init__(self) -> None:
        self._stamp: tuple[int, float] | None = None
        self._best: tuple[Measured, float] | None = None

    @property
    def best(self) -> Measured | None:
        """The quickest exchange of late: it tells the clocks' difference best."""
        return self._best[0] if self._best else None

    def forget(self) -> None:
        """What was sent so far may be echoed no more."""
        self._stamp = None

    def sent(self, wall_ms: int, now: float) -> None:
        """This stamp goes out."""
        self._stamp = (wall_ms, now)

    def came(self, echo_ms: int, wall_ms: int, now: float) -> float | None:
        """An echo, and the receiver's wall clock: seconds of the round trip, if it tells any."""
        if self._stamp is None or echo_ms != self._stamp[0]:
            return None
        seconds = now - self._stamp[1]
        self._stamp = None
        round_trip_ms = round(seconds * 1000)
        ahead_ms = wall_ms - (echo_ms + round(seconds * 500))
        if abs(ahead_ms) <= _MOST_AHEAD_MS and not self._is_worse(round_trip_ms, now):
            self._best = (Measured(ahead_ms, round_trip_ms), now)
        return seconds

    def _is_worse(self, round_trip_ms: int, now: float) -> bool:
        if self._best is None:
            return False
        best, at = self._best
        # Clocks drift, so the quickest is not believed for ever.
        return round_trip_ms > 1.25 * best.round_trip_ms + 1 and now - at < _MEASURE_AGAIN_S
