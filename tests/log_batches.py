"""Batches for tests of the log: small, and named by one number or by site and number."""

from __future__ import annotations

from relay.batches.batch import (
    EVERY_SITE,
    BatchHeader,
    BatchKind,
    BatchName,
    Entry,
    LoggedBatch,
    Series,
)
from relay.batches.format import seal
from relay.batches.fragments import split

INCARNATION = b"incarn-1"


def batch_name(
    sequence: int, *, origin: str = "paris", incarnation: bytes = INCARNATION
) -> BatchName:
    return BatchName(Series(origin, incarnation, "orders", 0, EVERY_SITE), sequence)


def batch(
    sequence: int,
    *,
    origin: str = "paris",
    incarnation: bytes = INCARNATION,
    kind: BatchKind = BatchKind.MESSAGES,
    published_ms: int = 1_000_000,
    body: bytes = b"body",
    messages: int = 2,
    format: int = 1,
) -> tuple[BatchHeader, bytes]:
    """A batch of `messages` messages, sealed: its header and its bytes."""
    entries = [
        Entry(bytes([i]) * 16, b"order.new", b"\x00\x00", body, published_ms)
        for i in range(messages if kind is BatchKind.MESSAGES else 0)
    ]
    header = BatchHeader(
        kind=kind,
        name=batch_name(sequence, origin=origin, incarnation=incarnation),
        incarnation_sequence=sequence,
        predecessors=(),
        revision="r1",
        entry_count=len(entries),
        byte_count=0,
        total_messages=0,
        total_bytes=0,
        first_published_ms=published_ms,
        last_published_ms=published_ms,
        path=(origin,),
        format=format,
    )
    return seal(header, entries)


def big_message(
    first: int,
    body: bytes,
    *,
    exchange: str = "orders",
    identity: bytes = b"identity--------",
    body_apart: bool = True,
    kind: BatchKind = BatchKind.FRAGMENT,
) -> list[tuple[BatchHeader, bytes]]:
    """Batches of a big message's pieces, from this sequence on, as a site with `content` packs."""
    series = Series("paris", INCARNATION, exchange, 0, EVERY_SITE)
    made = []
    for fragment, entry in split(Entry(identity, b"order.new", b"\x00\x00", body, 1_000_000)):
        sequence = first + fragment.piece
        name = BatchName(series, sequence)
        header = BatchHeader(
            *(kind, name, sequence, (), "r1", 1, 0, 0, 0, 1_000_000, 1_000_000),
            path=("paris",),
            fragment=fragment,
        )
        made.append(seal(header, [entry], body_apart=body_apart))
    return made


def sequences(batches: list[LoggedBatch]) -> list[int]:
    """The sequences of these batches."""
    return [one.header.name.sequence for one in batches]
