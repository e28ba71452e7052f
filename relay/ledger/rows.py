"""Rows of the ledger: each stage's account of each message, which audits read.

A row is one stage's work on one batch, or on the part of a batch that one commit settled. Values of
single messages are packed into columns of the row, message after message: a row of 256 costs as
much to write as a row of one, and an audit need not open what adds up.

A node keeps rows in its store in a form of its own (below) and never loads pyarrow, which costs 50
MB; the files' form is in `relay.ledger.columns`.

Bytes in the store::

    1 version   1 stage   1 event   1 batch kind
    8 recorded ms   8 first published ms   8 last published ms   8 through ms (-1: not said)
    8 sequence   8 incarnation sequence   8 incarnation
    4 lane   4 first entry   4 count   4 fragment piece (-1: no fragment)
    4 pieces of its message (-1: no fragment; version 1 of these bytes lacks them)
    4 + n   texts: origin, exchange, revision, neighbour, position, reason; then destinations and
            path, each a varint number of texts before its texts
    4 + n   identities, 16 each
    4 + n   content hashes, 8 each
    4 + n   outcomes, 1 each
    4 + n   published, 4 each, signed, ms after first published
    4 + n   delivered, 4 each, signed, ms after recorded

All numbers little-endian. A text is a varint length and UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from struct import Struct
from struct import error as struct_error

from relay.batches import varint

ROW_VERSION = 2
"""Version of the bytes in the store; 1, which a node may still have after an upgrade, is read too.
An unknown event is refused like an unknown version: its rows stay in the store until a version of
the program that knows the event exports them.
"""
IDENTITY_BYTES = 16
CONTENT_BYTES = 8
OFFSET_BYTES = 4

_HEAD = Struct("<4B4q2q8s5i")
_HEAD_1 = Struct("<4B4q2q8s4i")
_LENGTH = Struct("<I")


class Stage(IntEnum):
    """Stage that writes a row."""

    PACKED = 1
    """The packer: the batch is in the site's own log, confirmed."""
    LINKED_OUT = 2
    """The link's sender: the neighbour's log has the batch."""
    LINKED_IN = 3
    """The link's receiver: the batch is in this site's log."""
    DELIVERED = 4
    """The deliverer: settled here, each message in its own way."""


class Event(IntEnum):
    """Kind of a row."""

    BATCH = 1
    """The stage did its work with these messages."""
    IDLE = 2
    """Sign of life, every minute whatever happens, so that an idle stage differs from a missing
    one.
    """
    VOID = 3
    """The batch does not count: its incarnation had ended before it."""
    QUARANTINED = 4
    """The batch at `position` cannot be decoded."""
    GAP = 5
    """Retention ate entries after `position` that the stage still needed."""
    RETRIED = 6
    """An operator had a dead letter, or a message in quarantine, sent again."""
    DROPPED = 7
    """An operator gave up a dead letter, or a message in quarantine."""
    THROUGH = 8
    """Position, not a batch; written when moved, at most once a minute and when the node ends.
    Stage DELIVERED: of the flow (`origin`, `exchange`, `lane`), all that this site's log has up to
    (`incarnation`, `incarnation_sequence`) is settled here and has its rows before this one. Stage
    PACKED: all batches of the site's own `incarnation` up to `incarnation_sequence`, over all
    exchanges, have their rows before this one.
    """
    GAP_ACCEPTED = 9
    """A person has accepted a gap: the stage goes on with what the log has. `reason` has the
    person, the time and the missing part; `position` is the gap's.
    """
    ENDED = 10
    """End of the state in order, its last row of each stage (`ended_rows`): nothing that the stage
    did lacks a row before this one, and rows of what follows are in other states, from number 0
    on. A state without such a row at its end that has a successor was lost, and rows with it.
    `reason` says why the state ended.
    """


class Outcome(IntEnum):
    """Outcome of one message at this site, in the low 4 bits of its byte in `outcomes`."""

    PENDING = 0
    DELIVERED = 1
    UNROUTED = 2
    DUPLICATE = 3
    EXPIRED = 4
    DEAD = 5
    QUARANTINED = 6
    OWN = 7
    """The site's own message: entered at the barrier, not published back."""
    VOID = 8
    SENT = 9
    """Packed; also sent again by a repair."""
    DEFERRED = 10
    """Refused, and tried again while later messages go on; in no row."""


OUTCOME_MASK = 0x0F
CONFLICT = 0x10
"""Flag: the identity was known with other content (delivered all the same)."""
REDELIVERED = 0x20
"""Flag: went out marked `x-mesh-redelivered`."""
REPAIRED = 0x40
"""Flag: came in a repair batch."""


class BadLedgerRow(ValueError):
    """Bytes that are no row of a known version."""


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One row. Times are milliseconds since 1970, times of publishing by the origin's clock, others
    by this site's.

    The packed columns are empty where the stage does not look at messages (links, idle), and
    otherwise hold `count` values. `pack_*` make them.
    """

    stage: Stage
    recorded_ms: int
    event: Event = Event.BATCH
    kind: int = 0
    """Number of the `BatchKind`; 0 for a row without a batch."""
    origin: str = ""
    """Cluster ID of the batch's origin."""
    incarnation: bytes = bytes(8)
    exchange: str = ""
    lane: int = 0
    destinations: tuple[str, ...] = ()
    """Cluster IDs; empty for every site."""
    sequence: int = -1
    incarnation_sequence: int = -1
    revision: str = ""
    path: tuple[str, ...] = ()
    neighbour: str = ""
    """Site at the other end of the link."""
    fragment: int = -1
    pieces: int = -1
    """Number of pieces of its message; -1 for whole messages, and in rows of former versions."""
    first_published_ms: int = 0
    last_published_ms: int = 0
    through_ms: int = -1
    """Time before which everything published for this stage is dealt with; -1 where the stage
    cannot know. Closes a day's books.
    """
    position: str = ""
    """Idle and trouble: name of the last batch dealt with, or the offset."""
    reason: str = ""
    first_entry: int = 0
    count: int = 0
    identities: bytes = b""
    contents: bytes = b""
    outcomes: bytes = b""
    published: bytes = b""
    delivered: bytes = b""


def pack_contents(contents: Iterable[bytes]) -> bytes:
    """Content hashes, cut to 8 bytes each."""
    return b"".join([content[:CONTENT_BYTES] for content in contents])


def encode_row(row: LedgerRow) -> bytes:
    """Encode as drawn above. Raises ValueError if a packed column does not hold `count` values."""
    for column, size in (
        (row.identities, IDENTITY_BYTES),
        (row.contents, CONTENT_BYTES),
        (row.outcomes, 1),
        (row.published, OFFSET_BYTES),
        (row.delivered, OFFSET_BYTES),
    ):
        if column and len(column) != size * row.count:
            raise ValueError(f"a column of {len(column)} bytes for {row.count} messages")
    texts = _encode_texts(
        (row.origin, row.exchange, row.revision, row.neighbour, row.position, row.reason),
        row.destinations,
        row.path,
    )
    length = _LENGTH.pack
    return b"".join(
        (
            _HEAD.pack(
                ROW_VERSION,
                row.stage,
                row.event,
                row.kind,
                row.recorded_ms,
                row.first_published_ms,
                row.last_published_ms,
                row.through_ms,
                row.sequence,
                row.incarnation_sequence,
                row.incarnation,
                row.lane,
                row.first_entry,
                row.count,
                row.fragment,
                row.pieces,
            ),
            length(len(texts)),
            texts,
            length(len(row.identities)),
            row.identities,
            length(len(row.contents)),
            row.contents,
            length(len(row.outcomes)),
            row.outcomes,
            length(len(row.published)),
            row.published,
            length(len(row.delivered)),
            row.delivered,
        )
    )


def decode_row(data: bytes) -> LedgerRow:
    """Decode a row. Raises BadLedgerRow."""
    if not data or data[0] not in (1, ROW_VERSION):
        raise BadLedgerRow(f"not a ledger row of version {ROW_VERSION}: {data[:4]!r}")
    layout = _HEAD if data[0] == ROW_VERSION else _HEAD_1
    try:
        head = layout.unpack_from(data)
        columns: list[bytes] = []
        at = layout.size
        for _ in range(6):
            (size,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size
            columns.append(data[at : at + size])
            at += size
        (origin, exchange, revision, neighbour, position, reason), destinations, path = (
            _decode_texts(columns[0])
        )
        stage, event = Stage(head[1]), Event(head[2])
    except (struct_error, ValueError) as error:
        raise BadLedgerRow(str(error)) from error
    if at != len(data):
        raise BadLedgerRow(f"{len(data)} bytes where {at} were expected")
    return LedgerRow(
        stage=stage,
        event=event,
        kind=head[3],
        recorded_ms=head[4],
        first_published_ms=head[5],
        last_published_ms=head[6],
        through_ms=head[7],
        sequence=head[8],
        incarnation_sequence=head[9],
        incarnation=head[10],
        lane=head[11],
        first_entry=head[12],
        count=head[13],
        fragment=head[14],
        pieces=head[15] if layout is _HEAD else -1,
        origin=origin,
        exchange=exchange,
        revision=revision,
        neighbour=neighbour,
        position=position,
        reason=reason,
        destinations=destinations,
        path=path,
        identities=columns[1],
        contents=columns[2],
        outcomes=columns[3],
        published=columns[4],
        delivered=columns[5],
    )


def ended_rows(recorded_ms: int, reason: str) -> tuple[LedgerRow, ...]:
    """Last rows of a state that ends in order, one of each stage: to be written in one commit, when
    nothing works on the state any more, and exported with all rows before them.
    """
    return tuple(LedgerRow(stage, recorded_ms, event=Event.ENDED, reason=reason) for stage in Stage)


def recorded_ms_of(data: bytes) -> int:
    """Time when an encoded row was recorded, without decoding the rest."""
    recorded: int = _HEAD.unpack_from(data)[4]
    return recorded


@lru_cache(maxsize=1024)
def _encode_texts(
    fields: tuple[str, ...], destinations: tuple[str, ...], path: tuple[str, ...]
) -> bytes:
    """Encode texts; cached, since the same few hundred combinations come with every batch."""
    out = bytearray()
    for text in fields:
        varint.put_text(out, text)
    for texts in (destinations, path):
        varint.put(out, len(texts))
        for text in texts:
            varint.put_text(out, text)
    return bytes(out)


@lru_cache(maxsize=1024)
def _decode_texts(data: bytes) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    fields, at = _get_texts(data, 0, 6)
    count, at = varint.get(data, at)
    destinations, at = _get_texts(data, at, count)
    count, at = varint.get(data, at)
    path, at = _get_texts(data, at, count)
    return fields, destinations, path


def _get_texts(data: bytes, at: int, count: int) -> tuple[tuple[str, ...], int]:
    texts = []
    for _ in range(count):
        text, at = varint.get_text(data, at)
        texts.append(text)
    return tuple(texts), at
