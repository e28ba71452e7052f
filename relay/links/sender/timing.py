"""Waits of a link's sender, and the round trips and clocks that it measures. Pure arithmetic."""

from __future__ import annotations

from relay.links.settings import KIB, LinkSettings
from relay.links.wire import Measured

_SAMPLE_BYTES = 16 * KIB
"""Size of the smallest sample: less shows how much there was to send, not the line's speed."""
_DECAY = 0.7
_MOST_DOUBLINGS = 10
_MEASURE_AGAIN_S = 600.0
_DRIFT_MS = 60
"""Most that two clocks run apart while a measurement is believed, by crystals of 50 ppm each."""
_MOST_AHEAD_MS = 1 << 48
"""Largest plausible difference: no clock is 9,000 years ahead, and a PULSE has 64 bits for it."""


class Patience:
    """Time-outs of a session without progress, by what the line has shown so far.

    `max(least, 4 round trips, 3 x outstanding bytes / measured rate)`, doubled after each session
    that brought nothing: so a line slower than anything measured gets through in the end.
    """

    def __init__(self, settings: LinkSettings) -> None:
        self._least = settings.time_out_s
        self._silence = settings.silence_s
        self._bytes = 0.0
        self._seconds = 0.0
        self.round_trip_s = 0.0
        self.fruitless = 0

    @property
    def rate(self) -> float:
        """Bytes acknowledged a second while there was enough to send, or 0 if unknown."""
        return self._bytes / self._seconds if self._seconds > 0 else 0.0

    def measured_round_trip(self, seconds: float) -> None:
        old = self.round_trip_s
        self.round_trip_s = seconds if old == 0.0 else old + (seconds - old) / 4

    def measured_transfer(self, nbytes: int, seconds: float) -> None:
        """Take in an acknowledgement `seconds` after sending, or after the last ACK."""
        if nbytes < _SAMPLE_BYTES or seconds <= 0:
            return
        self._bytes = self._bytes * _DECAY + nbytes
        self._seconds = self._seconds * _DECAY + seconds

    def time_out(self, outstanding_bytes: int) -> float:
        limit = max(self._least, 4 * self.round_trip_s)
        if self.rate > 0:
            limit = max(limit, 3 * outstanding_bytes / self.rate)
        return limit * self._doubled()

    def silence(self) -> float:
        return self._silence * self._doubled()

    def _doubled(self) -> float:
        return 2.0 ** min(self.fruitless, _MOST_DOUBLINGS)


def clock_difference_ms(out: Measured | None, back: Measured | None) -> int | None:
    """Return a neighbour's clock minus ours in ms, or None if neither end has measured. Of our
    sender's measurement (`out`) and that of the neighbour's sender (`back`), the one with the
    shorter round trip counts.
    """
    candidates = [(out.round_trip_ms, out.ahead_ms)] if out else []
    if back is not None:
        candidates.append((back.round_trip_ms, -back.ahead_ms))
    return min(candidates)[1] if candidates else None


class LinkEcho:
    """Echoes of asks and pulses, from which a link's sender learns round trip and clocks.

    The receiver returns the last wall clock it was sent, together with its own. Only the echo of
    the latest stamp counts, and only once. `best` outlives the sessions, a stamp does not.
    """

    def __init__(self) -> None:
        self._stamp: tuple[int, float] | None = None
        self._best: tuple[Measured, float] | None = None

    @property
    def best(self) -> Measured | None:
        """Measurement of the quickest recent exchange, which gives the clocks' difference best."""
        return self._best[0] if self._best else None

    def forget(self) -> None:
        """Expect no echo of any stamp sent so far."""
        self._stamp = None

    def sent(self, wall_ms: int, now: float) -> None:
        """Note the stamp that goes out now."""
        self._stamp = (wall_ms, now)

    def echoed(self, echo_ms: int, wall_ms: int, now: float) -> float | None:
        """Take in an echo and the receiver's wall clock. Returns the round trip in seconds, or None
        if the echo is old.
        """
        if self._stamp is None or echo_ms != self._stamp[0]:
            return None
        seconds = now - self._stamp[1]
        self._stamp = None
        round_trip_ms = round(seconds * 1000)
        ahead_ms = wall_ms - (echo_ms + round(seconds * 500))
        measured = Measured(ahead_ms, round_trip_ms)
        if abs(ahead_ms) <= _MOST_AHEAD_MS and not self._is_worse(measured, now):
            self._best = (measured, now)
        return seconds

    def _is_worse(self, measured: Measured, now: float) -> bool:
        if self._best is None:
            return False
        best, at = self._best
        is_quick = measured.round_trip_ms <= 1.25 * best.round_trip_ms + 1
        # Each is wrong by half its round trip at most: if both cannot be right, a clock was set.
        most_apart_ms = (measured.round_trip_ms + best.round_trip_ms) / 2 + _DRIFT_MS
        was_set = abs(measured.ahead_ms - best.ahead_ms) > most_apart_ms
        # Clocks drift, so the quickest exchange is not believed for ever.
        return not is_quick and not was_set and now - at < _MEASURE_AGAIN_S
