"""Report of an apply at one site."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ItemOutcome(StrEnum):
    """State of one declared object after an apply."""

    THERE = "already there"
    CREATED = "created"
    CHANGED = "changed"
    UNBOUND = "unbound"
    """Taken out of the file, so that the queue drains."""
    LEFT = "left over"
    """Present, though the file no longer has it: nothing is deleted, a person should look."""
    UNCHECKED = "not checked"
    """Impossible to examine; the detail has the reason, the mend the commands to run by hand."""
    DIFFERS = "differs"
    """Present with other attributes, which cannot be changed in place."""
    FAILED = "failed"


DONE = frozenset({ItemOutcome.CREATED, ItemOutcome.CHANGED, ItemOutcome.UNBOUND})
BAD = frozenset({ItemOutcome.DIFFERS, ItemOutcome.FAILED})


@dataclass(frozen=True, slots=True)
class Item:
    """One object at a site. `kind` is exchange, queue, binding, partitions, user, rights,
    policy or broker.
    """

    kind: str
    name: str
    outcome: ItemOutcome
    detail: str = ""
    mend: str = ""


@dataclass(frozen=True, slots=True)
class SiteReport:
    """All items of an apply, in its order."""

    site: str
    items: tuple[Item, ...]

    @property
    def changes(self) -> tuple[Item, ...]:
        """Items that the apply changed."""
        return tuple(item for item in self.items if item.outcome in DONE)

    @property
    def faults(self) -> tuple[Item, ...]:
        """Items that keep the site from working as declared."""
        return tuple(item for item in self.items if item.outcome in BAD)

    @property
    def unchecked(self) -> tuple[Item, ...]:
        return tuple(item for item in self.items if item.outcome is ItemOutcome.UNCHECKED)

    @property
    def ok(self) -> bool:
        """True if nothing differs or failed; unchecked items do not count."""
        return not self.faults
