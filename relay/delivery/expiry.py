"""What an expiration has come to by the time a message is delivered."""

from __future__ import annotations


def left_of(deadline_ms: int, now_ms: int) -> int | None:
    """Milliseconds left; 0 or less means expired; None when the message had no expiration."""
    return deadline_ms - now_ms if deadline_ms else None
