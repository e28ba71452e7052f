"""Succession of state folders: which of a site's states ended in order, and which were lost. Pure.

A site has a state for each of its slots. A state whose last row is `ended` has all its rows in
files, so its successors continue it, be they of other slots. A state without such a row that has a
successor was lost, and rows with it: positions of later states do not show which messages have
rows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateRun:
    """Rows of one stage in one state, as far as they were read. `first`: number of the first row;
    times are of recording. `is_ended`: True if the last row is `ended`, and none is missing before.
    """

    slot: int
    state: str
    first: int
    from_ms: int
    to_ms: int
    is_ended: bool

    def follows(self, other: StateRun) -> bool:
        """True if this state began when the other one had stopped: a state of the same slot that
        began later, or one of another slot that began, with row 0, behind the other's last row.
        """
        if self.slot == other.slot:
            return (self.from_ms, self.state) > (other.from_ms, other.state)
        return self.first == 0 and self.from_ms > other.to_ms


def renewed_ms(runs: Collection[StateRun]) -> int | None:
    """Return when the first state began that follows a lost one, or None if no state was lost.
    `runs`: of one stage of one site.
    """
    return min(
        (later.from_ms for run in runs if not run.is_ended for later in runs if later.follows(run)),
        default=None,
    )


def until_lost(runs: Collection[StateRun]) -> frozenset[str]:
    """Return the states that show passed positions: those that began before any was lost."""
    since_ms = renewed_ms(runs)
    return frozenset(run.state for run in runs if since_ms is None or run.from_ms < since_ms)
