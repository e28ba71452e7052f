"""Pure: a token bucket that says when bytes are through, rather than whether they may go."""


class TokenBucket:
    """Passes `rate_bits_per_s`, and up to `burst_bytes` at once after a rest.

    Kept as the moment at which what was reserved is through: what is reserved later begins there,
    so a timer that fires late costs no capacity. `rate_bits_per_s=None` passes all at once.
    Times are seconds of any one clock.
    """

    __slots__ = ("_burst_bits", "_clear_at", "_rate")

    def __init__(self, rate_bits_per_s: float | None, burst_bytes: int, now: float) -> None:
        self._rate = rate_bits_per_s
        self._burst_bits = burst_bytes * 8
        self._clear_at = now - self._burst_seconds()

    def reserve(self, size_bytes: int, now: float) -> float:
        """The moment at which `size_bytes` more are through, if they stand ready at `now`."""
        if self._rate is None:
            self._clear_at = now
        else:
            start = max(self._clear_at, now - self._burst_seconds())
            self._clear_at = start + size_bytes * 8 / self._rate
        return max(self._clear_at, now)

    def change_rate(self, rate_bits_per_s: float | None, now: float) -> float:
        """From now on this rate; what was reserved and is not through yet counts at the new one.

        Returns the moment at which all of it is through.
        """
        if self._rate is None or rate_bits_per_s is None:
            self._rate = rate_bits_per_s
            self._clear_at = now
            return now
        outstanding_bits = (self._clear_at - now) * self._rate
        self._rate = rate_bits_per_s
        self._clear_at = now + outstanding_bits / rate_bits_per_s
        return max(self._clear_at, now)

    def _burst_seconds(self) -> float:
        return 0.0 if self._rate is None else self._burst_bits / self._rate
