"""What there is to tell of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.chaos.account import Account
from tests.chaos.schedule import Fault
from tests.chaos.timeline import Timeline

BESIDE_BACKLOG_S = 30.0
BACKLOG_FACTOR = 1.5


@dataclass(slots=True)
class Drain:
    """After the last fault was healed and the load had ended."""

    backlog: int = 0
    """Messages that the site with the most of them had still to be given."""
    live_per_s: float = 0.0
    """Confirmed to publishers at all sites while faults struck."""
    took_s: float | None = None
    """None if it was not in time."""

    @property
    def deadline_s(self) -> float:
        return BACKLOG_FACTOR * self.backlog / max(self.live_per_s, 1.0) + BESIDE_BACKLOG_S


@dataclass(slots=True)
class Outcome:
    timeline: Timeline
    schedule: Sequence[Fault]
    graph: str
    rabbitmq: str
    """Its version."""
    account: Account = field(default_factory=Account)
    drain: Drain = field(default_factory=Drain)
    published: dict[str, dict[str, int]] = field(default_factory=dict)
    """By site: confirmed, refused, indeterminate."""
    brought: dict[str, int] = field(default_factory=dict)
    """By site: messages at the queue that no fault struck, its own among them."""

    @property
    def broken(self) -> list[str]:
        return self.account.broken
