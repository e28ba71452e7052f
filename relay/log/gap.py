"""What is said where retention has eaten what a stage of the node still needed.

Nothing goes on silently behind a gap: the stage stops, the ledger has a row, and a person decides.
"""

from __future__ import annotations

from relay.batches.batch import Flow
from relay.ledger.rows import Event, LedgerRow, Stage
from relay.log.reader import LogGap

HINT = "`isthmus recover FILE --site SITE` goes on with what there is"


def gap_reason(gap: LogGap) -> str:
    """The stage's state, for people."""
    return f"gap: {gap}; {HINT}"


def gap_row(
    gap: LogGap, stage: Stage, now_ms: int, *, neighbour: str = "", flow: Flow | None = None
) -> LedgerRow:
    """The ledger's row. `neighbour` of a link, `flow` if it concerns only one."""
    return LedgerRow(
        stage=stage,
        recorded_ms=now_ms,
        event=Event.GAP,
        origin=flow.origin if flow else "",
        exchange=flow.exchange if flow else "",
        lane=flow.lane if flow else 0,
        neighbour=neighbour,
        position=str(gap.place.name),
        reason=str(gap),
    )
