"""What a chunk's outcomes say in the ledger and in the counters."""

from __future__ import annotations

from relay.delivery.chunk import Chunk, Part
from relay.delivery.context import DeliveryCounters
from relay.ledger.batch_rows import batch_row
from relay.ledger.rows import (
    CONFLICT,
    REDELIVERED,
    REPAIRED,
    Event,
    LedgerRow,
    Outcome,
    Stage,
    pack_contents,
    pack_offsets,
)


def delivered_row(chunk: Chunk, part: Part, begin: int, end: int, now_ms: int) -> LedgerRow:
    """One row for messages `begin` to `end` (half open) of the chunk, all of this part."""
    entries = chunk.entries[begin:end]
    outcomes = bytearray(chunk.outcomes[begin:end])
    if part.repaired_of:
        outcomes = bytearray(outcome | REPAIRED for outcome in outcomes)
    for number in chunk.conflicts:
        if begin <= number < end:
            outcomes[number - begin] |= CONFLICT
    for number in chunk.flagged:
        if begin <= number < end:
            outcomes[number - begin] |= REDELIVERED
    return batch_row(
        part.header,
        Stage.DELIVERED,
        now_ms,
        reason="; ".join(sorted({chunk.reasons[n] for n in chunk.reasons if begin <= n < end})),
        position=part.repaired_of,
        first_entry=part.first + begin - part.start,
        count=end - begin,
        identities=b"".join([entry.identity for entry in entries]),
        contents=pack_contents(chunk.hashes[begin:end]),
        outcomes=bytes(outcomes),
        published=pack_offsets([e.published_ms for e in entries], part.header.first_published_ms),
        delivered=pack_offsets([now_ms] * (end - begin), now_ms),
    )


def void_row(part: Part, now_ms: int) -> LedgerRow:
    """One row for a batch without a message for this site; `part.reason` says why."""
    return batch_row(
        part.header,
        Stage.DELIVERED,
        now_ms,
        event=Event.QUARANTINED if part.reason else Event.VOID,
        position=str(part.header.name),
        reason=part.reason,
    )


def count_outcomes(counters: DeliveryCounters, chunk: Chunk, begin: int, end: int) -> None:
    """Add what has become of these messages."""
    outcomes = chunk.outcomes[begin:end]
    delivered = outcomes.count(Outcome.DELIVERED)
    counters.delivered += delivered
    counters.repaired += delivered if chunk.is_repair else 0
    if delivered < len(outcomes):
        counters.duplicates += outcomes.count(Outcome.DUPLICATE)
        counters.unrouted += outcomes.count(Outcome.UNROUTED)
        counters.expired += outcomes.count(Outcome.EXPIRED)
        counters.dead_lettered += outcomes.count(Outcome.DEAD)
        counters.quarantined += outcomes.count(Outcome.QUARANTINED)
        counters.own += outcomes.count(Outcome.OWN)
    counters.identity_conflicts += sum(begin <= n < end for n in chunk.conflicts)
    counters.redelivered += sum(
        begin <= n < end and chunk.outcomes[n] is Outcome.DELIVERED for n in chunk.flagged
    )
