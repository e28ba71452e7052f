"""What an apply found and did at one site."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ItemOutcome(StrEnum):
    """What came of one thing that must exist."""

    THERE = "already there"
    CREATED = "created"
    CHANGED = "changed"
    UNBOUND = "unbound"
    """Taken out of the file, so that its queue drains."""
    LEFT = "left over"
    """There, though the file no longer asks for it: nothing is deleted, somebody should look."""
    UNCHECKED = "not checked"
    """Nobody could look; the detail says why, the mend how to do it by hand."""
    DIFFERS = "differs"
    """There, but otherwise, and it cannot be changed in place."""
    FAILED = "failed"


DONE = frozenset({ItemOutcome.CREATED, ItemOutcome.CHANGED, ItemOutcome.UNBOUND})
BAD = frozenset({ItemOutcome.DIFFERS, ItemOutcome.FAILED})


@dataclass(frozen=True, slots=True)
class Item:
    """One thing at a site. `kind` is exchange, queue, binding, user, rights, policy or broker."""

    kind: str
    name: str
    outcome: ItemOutcome
    detail: str = ""
    mend: str = ""


@dataclass(frozen=True, slots=True)
class SiteReport:
    """All that an apply looked at, in that order."""

    site: str
    items: tuple[Item, ...]

    @property
    def changes(self) -> tuple[Item, ...]:
        """What the apply did."""
        return tuple(item for item in self.items if item.outcome in DONE)

    @property
    def faults(self) -> tuple[Item, ...]:
        """What keeps the site from working as the file says."""
        return tuple(item for item in self.items if item.outcome in BAD)

    @property
    def unchecked(self) -> tuple[Item, ...]:
        return tuple(item for item in self.items if item.outcome is ItemOutcome.UNCHECKED)

    @property
    def ok(self) -> bool:
        """Whether nothing differs or failed; what could not be checked does not count."""
        return not self.faults
