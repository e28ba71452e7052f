"""Belief of this process that it still holds its lock. Pure; times in seconds, monotonic.

A process that was stopped, or whose broker has gone silent, may have lost its lock unknowingly:
later appends would come beside its successor's. So the packer asks here before each. Appends just
before the loss are void by number; this check keeps the packer from continuing.
"""

from __future__ import annotations


class Lease:
    """Lease on the lock, fed by a timer with the bytes heard from the broker."""

    def __init__(self, now: float, silence_s: float, stall_s: float) -> None:
        self._silence_s = silence_s
        self._stall_s = stall_s
        self._heard = -1
        self._heard_at = now
        self._ticked_at = now

    def tick(self, now: float, bytes_heard: int, *, listening: bool = True) -> None:
        """Note the bytes heard, several times a second. `listening`: False while not reading."""
        if bytes_heard != self._heard or not listening:
            # Heard at some time since the last tick: at worst, just after.
            self._heard_at = self._ticked_at
        self._heard = bytes_heard
        self._ticked_at = now

    def lapsed(self, now: float) -> str:
        """Reason why the lock may be another's by now; empty while certainly ours."""
        if now - self._ticked_at > self._stall_s:
            return f"this process stood still for {now - self._ticked_at:.1f} s"
        if now - self._heard_at > self._silence_s:
            return f"nothing heard from the broker for {now - self._heard_at:.1f} s"
        return ""
