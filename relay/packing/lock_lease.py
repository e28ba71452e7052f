"""May this process still believe that it holds its lock? Pure; times in seconds, monotonic.

A process that was stopped, or whose broker has gone silent, may have lost its lock without having
been told yet: what it then still appends and hands on would come beside its successor's. So before
it does, it asks. What it appended just before is void by number; this keeps it from going further.
"""

from __future__ import annotations


class Lease:
    """Fed by a timer with what has been heard; `lapsed` says why not, or nothing."""

    def __init__(self, now: float, silence_s: float, stall_s: float) -> None:
        self._silence_s = silence_s
        self._stall_s = stall_s
        self._heard = -1
        self._heard_at = now
        self._ticked_at = now

    def tick(self, now: float, bytes_heard: int, *, listening: bool = True) -> None:
        """Call several times a second. `listening`: False while we ourselves do not read."""
        if bytes_heard != self._heard or not listening:
            # Heard at some time since the last tick: at the worst, just after it.
            self._heard_at = self._ticked_at
        self._heard = bytes_heard
        self._ticked_at = now

    def lapsed(self, now: float) -> str:
        """Why the lock may be another's by now; empty while it certainly is not."""
        if now - self._ticked_at > self._stall_s:
            return f"this process stood still for {now - self._ticked_at:.1f} s"
        if now - self._heard_at > self._silence_s:
            return f"nothing heard from the broker for {now - self._heard_at:.1f} s"
        return ""
