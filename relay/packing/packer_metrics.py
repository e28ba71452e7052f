"""What a packer counts and says of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum


class PackerState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    BLOCKED = "blocked"
    STOPPED = "stopped"
    DOWN = "down"


@dataclass(slots=True)
class PackerMetrics:
    """Counts since the process began."""

    messages: int = 0
    """Packed and confirmed by the log; a message in pieces counts once."""
    bytes: int = 0
    """Of their entries, before compression."""
    batches: int = 0
    batch_bytes: int = 0
    """As appended: compressed, with headers."""
    own: int = 0
    """Our deliverer's messages that came round, dropped."""
    returned: int = 0
    """Handed out again although logged: acknowledged, not packed again."""
    doubtful: int = 0
    """Packed although they may have been packed before; flagged where they are delivered."""
    malformed: int = 0
    """Logged although their properties cannot be read; deliverers quarantine them."""
    unwanted: int = 0
    """Packed and for no other site: no site's `wants` match their keys. They stay in this log."""
    incarnations: int = 0
    in_hand_messages: int = 0
    """Handed out by egress and not acknowledged."""
    in_hand_bytes: int = 0


@dataclass(slots=True)
class PackerStatus:
    """What `status` shows of a packer."""

    state: PackerState = PackerState.STARTING
    reason: str = ""
    """Why it is not running; empty while it is."""
    exchanges: dict[str, str] = field(default_factory=dict)
    """By exchange: why its messages wait. Empty when all are well."""


class StageTimes:
    """Stages in order, each from the end of the one before. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = self._last = clock()
        self._stages: list[str] = []

    def end(self, stage: str) -> None:
        """Note that this stage ended now."""
        now = self._clock()
        self._stages.append(f"{stage} {now - self._last:.1f} s")
        self._last = now

    def __str__(self) -> str:
        return f"{self._last - self._began:.1f} s ({', '.join(self._stages)})"
