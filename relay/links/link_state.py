"""What a link is said to be, by how far it has got and when; never by an open connection. Pure.

::

    paused     somebody holds it back
    gap        its log has lost what it should carry; a person has to accept that
    blocked    the broker where it meets its receiver takes no publishes
    down       no session, or nothing heard of the receiver for two signs of life
    starting   no session yet, and nothing known to be wrong
    stalled    in a session, and what waits does not move, or a canary does not come back
    lagging    moves, and the oldest that waits has waited for long
    running    everything else

`running` and `lagging` carry what they should.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from relay.batches.batch import BatchName

SILENT_IS_DOWN_S = 11.0
"""Two of the neighbour's signs of life have not come: said before the link gives its session up,
which a slow line must not suffer for."""
LAGGING_S = 10.0
"""Longer than any link needs that keeps up; shorter than anybody waits to be told."""
STALLED_S = 30.0
"""Something waits, and nothing of it was acknowledged. A thin line may take longer over one big
batch: it is stalled until then, as far as anybody can tell."""


class ReportedState(StrEnum):
    """The words of `isthmus status` for a link."""

    PAUSED = "paused"
    GAP = "gap"
    BLOCKED = "blocked"
    DOWN = "down"
    STARTING = "starting"
    STALLED = "stalled"
    LAGGING = "lagging"
    RUNNING = "running"


class LinkFacts(NamedTuple):
    """Of one link that nobody holds back. Seconds are ages; `heard_s` is None without a session."""

    gap: str = ""
    reason: str = ""
    """Why there is no session, or why it stands."""
    in_session: bool = True
    heard_s: float | None = 0.0
    is_blocked: bool = False
    lag_messages: int = 0
    lag_s: float = 0.0
    """How long the oldest message that the receiver lacks has been in the log."""
    unmoved_s: float = 0.0
    """How long something has waited without any of it being acknowledged."""
    unanswered_s: float = 0.0
    """How long a canary has not come back."""


def reported_state(facts: LinkFacts, receiver: str) -> tuple[ReportedState, str]:
    """The state, and why it is not `running`. `receiver` is its site's name."""
    if facts.gap:
        return ReportedState.GAP, facts.gap
    if facts.is_blocked:
        return ReportedState.BLOCKED, "the broker where it meets takes no publishes (an alarm)"
    if facts.heard_s is not None and facts.heard_s > SILENT_IS_DOWN_S:
        return ReportedState.DOWN, f"nothing heard of {receiver} for {facts.heard_s:.0f} s"
    if facts.reason:
        return ReportedState.DOWN, facts.reason
    if not facts.in_session:
        return ReportedState.STARTING, ""
    if facts.lag_messages and facts.unmoved_s > STALLED_S:
        return (
            ReportedState.STALLED,
            f"{receiver} is heard, and has acknowledged nothing for {facts.unmoved_s:.0f} s of "
            f"{facts.lag_messages} messages that wait",
        )
    if facts.unanswered_s > STALLED_S:
        return (
            ReportedState.STALLED,
            f"{receiver} is heard, and a batch without messages that should show that its log takes"
            f" some has not been acknowledged for {facts.unanswered_s:.0f} s",
        )
    if facts.lag_messages and facts.lag_s > LAGGING_S:
        return (
            ReportedState.LAGGING,
            f"the oldest message that waits has waited {facts.lag_s:.0f} s",
        )
    return ReportedState.RUNNING, ""


class Movement:
    """How long a link has had something to carry without getting any further."""

    def __init__(self) -> None:
        self._place: BatchName | None = None
        self._since: float | None = None

    def note(self, place: BatchName | None, lag_messages: int, now: float) -> None:
        """Where the link is, and what is behind that; to be told once a second."""
        if self._since is None or place != self._place or not lag_messages:
            self._place, self._since = place, now

    def unmoved_s(self, now: float) -> float:
        return 0.0 if self._since is None else now - self._since
