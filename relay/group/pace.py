"""Rate at which a site sends into its group. Pure.

A site may sit behind a line that takes less than the rate: then it asks for many pieces again, and
the rate falls until it asks for few. What counts is the site that asks for most: of pieces that get
lost here and there each of many sites asks for some, and a lower rate would save none of them.
"""

from __future__ import annotations

from collections import Counter

_BURST_S = 0.01
_LEAST_BURST = 8 * 1500
_JUDGED_EVERY_S = 1.0
_JUDGED_WITHIN_S = 10.0
_JUDGED_BYTES = 400 * 1400
"""Least that was sent before the rate falls. Of less, one of many sites lacks a tenth by chance:
at a loss of 5 % by the loss of 6 datagrams out of 51 in place of 2 or 3.
"""
_ASKED_AT_MOST = 0.1
"""Part of what was sent that one site may ask for again before the rate falls."""
_SLOWEST = 1 / 16
_GROWTH = 0.05
"""Part of the full rate that a slowed rate recovers in a second."""
_REPAIRS = 0.25
"""Part of the rate that repairs may take."""


class GroupPace:
    """Token bucket of `rate` bytes a second, and of a quarter for repairs."""

    def __init__(self, rate: float, now: float) -> None:
        self._full = rate
        self.rate = rate
        """Present rate, bytes a second."""
        self._left = self._repairs_left = self._burst
        self._filled_at = self._judged_at = now
        self._sent = 0
        self._asked: Counter[bytes] = Counter()
        """Bytes by the site that has asked for them."""

    @property
    def _burst(self) -> float:
        return max(_BURST_S * self.rate, _LEAST_BURST)

    def may_send(self, now: float, *, repair: bool = False) -> bool:
        """Return True if a datagram may go out now."""
        self._fill(now)
        return self._left > 0 and (not repair or self._repairs_left > 0)

    def wait_s(self, *, repair: bool = False) -> float:
        """Return the seconds until a datagram may go out, after `may_send` said no."""
        waits = [-self._left / self.rate]
        if repair:
            waits.append(-self._repairs_left / (_REPAIRS * self.rate))
        return max(0.001, *waits)

    def sent(self, nbytes: int, *, repair: bool = False) -> None:
        """Note a datagram that goes out."""
        self._left -= nbytes
        if repair:
            self._repairs_left -= nbytes
        else:
            self._sent += nbytes

    def asked(self, site: bytes, nbytes: int) -> None:
        """Note bytes of this site's stream that another site asks for."""
        self._asked[site] += nbytes

    def _fill(self, now: float) -> None:
        passed_s = max(0.0, now - self._filled_at)
        self._filled_at = max(now, self._filled_at)
        self._left = min(self._burst, self._left + passed_s * self.rate)
        repairs = self._repairs_left + passed_s * _REPAIRS * self.rate
        self._repairs_left = min(self._burst, repairs)
        judged_s = now - self._judged_at
        is_enough = self._sent >= _JUDGED_BYTES
        if judged_s >= (_JUDGED_EVERY_S if is_enough else _JUDGED_WITHIN_S):
            most = max(self._asked.values(), default=0)
            if is_enough and most > _ASKED_AT_MOST * self._sent:
                self.rate = max(_SLOWEST * self._full, self.rate / 2)
            else:
                self.rate = min(self._full, self.rate + _GROWTH * self._full * judged_s)
            self._judged_at, self._sent = now, 0
            self._asked.clear()
