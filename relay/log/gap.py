"""What is said where retention has eaten what a stage of the node still needed, and how it goes on.

Nothing goes on silently behind a gap: the stage stops, the ledger has a row, and a person decides
(`isthmus accept-gap`). From then on the stage's position is the place `just_before` the first
record that the log has: one without a batch, which a reader finds by its offset alone. If retention
has eaten more by then, that is a new gap.
"""

from __future__ import annotations

from relay.batches.batch import EVERY_SITE, BatchName, Flow, Place, Series
from relay.ledger.rows import Event, LedgerRow, Stage
from relay.log.reader import LogGap

HINT = "`isthmus accept-gap FILE SITE` shows what is missing, and has it go on with what there is"
_NO_BATCH = Series("", bytes(8), "", 0, EVERY_SITE)


def gap_reason(gap: LogGap) -> str:
    """The stage's state, for people."""
    return f"gap: {gap}; {HINT}"


def just_before(first: int) -> Place:
    """The place before the record at offset `first` (above 0), whatever stood there."""
    return Place(first - 1, BatchName(_NO_BATCH, first - 1))


START = just_before(0)
"""Where a gap begins of whoever was done with nothing; no reader begins there."""


def name_before(place: Place) -> str:
    """The name of the last batch that a stage was done with; of an accepted gap, its end."""
    if place == START:
        return "the log's start"
    if place.name.series == _NO_BATCH:
        return f"what was accepted as gone, up to offset {place.offset}"
    return str(place.name)


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
        position=name_before(gap.place),
        reason=str(gap),
    )
