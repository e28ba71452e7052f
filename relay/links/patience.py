"""How long a link's sender waits for what: arithmetic only, apart from any timer."""

from __future__ import annotations

from relay.links.settings import KIB, LinkSettings

_SAMPLE_BYTES = 16 * KIB
"""Less than this says how much there was to send, not how fast the line is."""
_DECAY = 0.7
_MOST_DOUBLINGS = 10


class Patience:
    """When a session without progress is given up, from what the line has shown so far.

    `max(least, 4 round trips, 3 x outstanding bytes / measured rate)`, doubled after each session
    that brought nothing: so a line that is slower than anything measured gets through in the end.
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
        """Bytes a second that were acknowledged while there was enough to send; 0: not known."""
        return self._bytes / self._seconds if self._seconds > 0 else 0.0

    def measured_round_trip(self, seconds: float) -> None:
        old = self.round_trip_s
        self.round_trip_s = seconds if old == 0.0 else old + (seconds - old) / 4

    def measured_transfer(self, nbytes: int, seconds: float) -> None:
        """`nbytes` were acknowledged, `seconds` after the ack before or after they were sent."""
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
