"""State of a link as reported to people, judged by its progress, never by an open connection. Pure.

::

    paused     somebody holds it back
    gap        its log has lost what it should carry; a person has to accept that
    blocked    the broker where it meets its receiver takes no publishes
    down       no session, or nothing heard of the receiver for two signs of life
    starting   no session yet, and nothing known to be wrong
    stalled    in a session, and what waits does not move, or a canary does not come back
    lagging    moves, and the oldest that waits has waited for long
    running    everything else

Links in `running` and `lagging` carry what they should.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from relay.batches.batch import BatchName

SILENT_IS_DOWN_S = 11.0
"""Silence after two missing signs of life of the neighbour; reported before the link gives up its
session, so that a slow line does not suffer."""
LAGGING_S = 10.0
"""Longest lag of a link which keeps up; short enough for a report in time."""
STALLED_S = 30.0
"""Longest wait without any acknowledgement. A thin line may take longer over a big batch, and
counts as stalled until then: nobody can tell the difference."""


class ReportedState(StrEnum):
    """States of a link as `isthmus status` prints them."""

    PAUSED = "paused"
    GAP = "gap"
    BLOCKED = "blocked"
    DOWN = "down"
    STARTING = "starting"
    STALLED = "stalled"
    LAGGING = "lagging"
    RUNNING = "running"


class LinkFacts(NamedTuple):
    """Facts about a link not held back. Seconds are ages; `heard_s` is None without a session."""

    gap: str = ""
    reason: str = ""
    """Reason why there is no session, or why the session stands still."""
    in_session: bool = True
    heard_s: float | None = 0.0
    is_blocked: bool = False
    lag_messages: int = 0
    lag_s: float = 0.0
    """Age, in the log, of the oldest message that the receiver lacks."""
    unmoved_s: float = 0.0
    """Time for which messages have waited without any acknowledgement."""
    unanswered_s: float = 0.0
    """Time for which a canary has not come back."""


def reported_state(facts: LinkFacts, receiver: str) -> tuple[ReportedState, str]:
    """Return the state, and the reason if not `running`. `receiver` is the receiving site."""
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
    """Time for which a link has had messages to carry without any progress."""

    def __init__(self) -> None:
        self._place: BatchName | None = None
        self._since: float | None = None

    def note(self, place: BatchName | None, lag_messages: int, now: float) -> None:
        """Take in the link's place and the messages behind it; call once a second."""
        if self._since is None or place != self._place or not lag_messages:
            self._place, self._since = place, now

    def unmoved_s(self, now: float) -> float:
        return 0.0 if self._since is None else now - self._since
