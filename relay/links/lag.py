"""How long a site's log has held what a link's receiver does not have yet. Pure.

What is in headers is the origin's clock, which may be off; this is the time since the own log
got the batch, which is what a link can be blamed for.
"""

from __future__ import annotations

from bisect import bisect_right

_MOST_SAMPLES = 2048
_EVERY_S = 1.0


class AppendTimes:
    """When the log's count of appended messages passed which number. One a node."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._counts: list[int] = []
        self._began: float | None = None

    def note(self, appended_messages: int, now: float) -> None:
        """The log has had so many messages appended since the start. To be told once a second."""
        times, counts = self._times, self._counts
        if self._began is None:
            self._began = now
        if times and appended_messages == counts[-1]:
            times[-1] = now
            return
        if times and now < times[-1] + _EVERY_S / 2:
            return
        times.append(now)
        counts.append(appended_messages)
        if len(times) > _MOST_SAMPLES:
            self._thin_out(now)

    def _thin_out(self, now: float) -> None:
        """Tell old lags more coarsely, to a sixteenth: samples as far apart as they are old."""
        times, counts = self._times[:1], self._counts[:1]
        for number in range(1, len(self._times) - 1):
            following = self._times[number + 1]
            if following - times[-1] > (now - following) / 16:
                times.append(self._times[number])
                counts.append(self._counts[number])
        self._times = [*times, self._times[-1]]
        self._counts = [*counts, self._counts[-1]]

    def age(self, appended_messages: int, lag_messages: int, now: float) -> float:
        """Seconds since the oldest of the last `lag_messages` was appended; since the start, if
        that was before. 0 for no lag.
        """
        if lag_messages <= 0 or self._began is None:
            return 0.0
        at = bisect_right(self._counts, appended_messages - lag_messages) - 1
        return max(0.0, now - (self._times[at] if at >= 0 else self._began))
