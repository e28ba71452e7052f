"""When to send a heartbeat, and when the peer has been silent for too long. Pure.

Time is counted in ticks of half a heartbeat, not read from a clock: a process that was paused or
busy sees one tick late, not many ticks of silence, and so does not take its own pause for the
peer's.
"""

from __future__ import annotations

from dataclasses import dataclass

TICKS_PER_HEARTBEAT = 2
_SILENT_AFTER = 2 * TICKS_PER_HEARTBEAT


@dataclass(slots=True)
class HeartbeatWatch:
    """Sees the byte counts of both directions at every tick."""

    sent: int = 0
    received: int = 0
    silent_ticks: int = 0

    def tick(self, sent: int, received: int, *, listening: bool) -> tuple[bool, bool]:
        """(send a heartbeat now?, is the peer silent for two heartbeats?).

        ``listening`` is False while we ourselves do not read: that silence is ours.
        """
        due = sent == self.sent
        self.silent_ticks = (
            0 if received != self.received or not listening else (self.silent_ticks + 1)
        )
        self.sent, self.received = sent, received
        return due, self.silent_ticks >= _SILENT_AFTER
