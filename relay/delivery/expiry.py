"""What an expiration has come to by the time a message is delivered."""

from __future__ import annotations

MAX_EXPIRATION_MS = (1 << 32) - 1
"""RabbitMQ closes the channel on whoever publishes a longer one."""


def left_of(deadline_ms: int, now_ms: int) -> int | None:
    """Milliseconds left, never more than a broker takes; 0 or less means expired; None when the
    message had no expiration.
    """
    return min(deadline_ms - now_ms, MAX_EXPIRATION_MS) if deadline_ms else None
