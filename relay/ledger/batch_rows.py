"""Ledger rows of batches: columns common to all stages, and those of links and the packer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relay.batches.batch import BatchHeader, BatchKind
from relay.batches.mesh_headers import message_origin
from relay.batches.packed_entries import PackedBatch, identities_of, published_offsets_of
from relay.ledger.rows import LedgerRow, Outcome, Stage


def batch_row(header: BatchHeader, stage: Stage, now_ms: int, **of_stage: Any) -> LedgerRow:
    """Row with all columns that follow from the batch's header; `of_stage` are the stage's own
    columns.
    """
    series = header.name.series
    return LedgerRow(
        stage=stage,
        recorded_ms=now_ms,
        kind=header.kind,
        origin=series.origin,
        incarnation=series.incarnation,
        exchange=series.exchange,
        lane=series.lane,
        destinations=series.destinations,
        sequence=header.name.sequence,
        incarnation_sequence=header.incarnation_sequence,
        revision=header.revision,
        path=header.path,
        fragment=header.fragment.piece if header.fragment else -1,
        pieces=header.fragment.pieces if header.fragment else -1,
        first_published_ms=header.first_published_ms,
        last_published_ms=header.last_published_ms,
        **of_stage,
    )


def linked_row(header: BatchHeader, stage: Stage, neighbour: str, now_ms: int) -> LedgerRow:
    """Row for a batch that has gone over a link. Links do not look at messages."""
    return batch_row(header, stage, now_ms, neighbour=neighbour, count=header.entry_count)


def packed_row(packed: PackedBatch, now_ms: int) -> LedgerRow:
    """Row for a batch that the site's log has confirmed."""
    header, entries = packed
    return batch_row(
        header,
        Stage.PACKED,
        now_ms,
        position=message_origin(header, entries)
        if isinstance(entries, Sequence) and header.kind is BatchKind.REPAIR
        else "",
        count=len(entries),
        identities=identities_of(entries),
        outcomes=bytes([Outcome.SENT]) * len(entries),
        published=published_offsets_of(entries, header.first_published_ms),
    )
