"""What only one session of a link's receiver knows."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True)
class ReceiverSession:
    """Numbers are those of the session's batches, from 1."""

    number: int
    nonce: bytes
    version: int
    """Of the link, in which both ends speak."""
    arrived: int = 0
    logged: int = 0
    acked: int = 0
    acked_at: float = 0.0
    unacked_bytes: int = 0
    waiting: deque[int] = field(default_factory=deque)
    """Sizes of what has arrived and is not logged, in order of number."""
    early: set[int] = field(default_factory=set)
    """Numbers logged before an earlier one."""
    echo_ms: int = 0
