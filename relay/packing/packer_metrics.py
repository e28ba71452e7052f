"""Counts and status of a packer, and the times of its beginning for the log line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from relay.delay_histogram import DelayHistogram


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
    """Messages packed and confirmed by the log; a message in pieces counts once."""
    bytes: int = 0
    """Bytes of their entries, before compression."""
    batches: int = 0
    batch_bytes: int = 0
    """Bytes as appended: compressed, with headers."""
    own: int = 0
    """Messages of our deliverer that came round and were dropped."""
    returned: int = 0
    """Messages handed out again although logged: acknowledged, not packed again."""
    doubtful: int = 0
    """Messages packed although perhaps packed before; delivered with a flag."""
    malformed: int = 0
    """Messages logged although their properties are unreadable; deliverers quarantine them."""
    unwanted: int = 0
    """Messages that no other site's `wants` match: packed, they stay in this log."""
    incarnations: int = 0
    in_hand_messages: int = 0
    """Messages handed out by egress and not acknowledged."""
    in_hand_bytes: int = 0
    delays: DelayHistogram = field(default_factory=DelayHistogram)
    """Delays of messages from the publish of their batch's oldest to the log's confirm."""

    def note_batch(self, stored_bytes: int, entry_bytes: int) -> None:
        """Count a confirmed batch: its bytes as appended, and those of its entries."""
        self.batches += 1
        self.batch_bytes += stored_bytes
        self.bytes += entry_bytes

    def note_messages(self, messages: int, delay_ms: int) -> None:
        """Count the messages of a confirmed batch, the oldest published `delay_ms` ago."""
        self.messages += messages
        self.delays.observe(delay_ms / 1000, messages)


@dataclass(slots=True)
class PackerStatus:
    """Status of a packer, shown by `isthmus status`."""

    state: PackerState = PackerState.STARTING
    reason: str = ""
    """Reason why the packer is not running; empty while running."""
    exchanges: dict[str, str] = field(default_factory=dict)
    """Reason why messages wait, by exchange. Empty when all are well."""


class StageTimes:
    """Durations of stages, each from the end of the stage before. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = self._last = clock()
        self._stages: list[str] = []

    def end(self, stage: str) -> None:
        """Note the end of this stage."""
        now = self._clock()
        self._stages.append(f"{stage} {now - self._last:.1f} s")
        self._last = now

    def __str__(self) -> str:
        return f"{self._last - self._began:.1f} s ({', '.join(self._stages)})"
