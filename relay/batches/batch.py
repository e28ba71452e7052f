"""What travels: batches, their names, their entries. Frozen values without behaviour of their own.

A *batch* is up to 256 messages of one flow, compressed once at the origin. Sites in between read
its header only. A batch names itself; everything else (duplicates of a batch, gaps, resumption)
follows from the name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import NamedTuple

EVERY_SITE: tuple[str, ...] = ()
"""The destination set of a batch that is for every site of the mesh."""

MAX_ENTRIES = 256
"""Messages a batch holds at most; also how far a deliverer publishes ahead of its commit."""


class BatchKind(IntEnum):
    """What a batch holds."""

    MESSAGES = 1
    FRAGMENT = 2
    MARK = 3
    CANARY = 4
    REPAIR = 5


class Flow(NamedTuple):
    """The unit of order and of waiting: one origin's exchange and lane."""

    origin: str
    exchange: str
    lane: int


class Series(NamedTuple):
    """All of a batch's name but its sequence: the sequence is dense inside one series.

    `origin` and `destinations` are cluster IDs; `destinations` is sorted, and `EVERY_SITE`
    stands for all of them. `incarnation` is the 8 random bytes of one run of a packer.
    """

    origin: str
    incarnation: bytes
    exchange: str
    lane: int
    destinations: tuple[str, ...]

    @property
    def flow(self) -> Flow:
        return Flow(self.origin, self.exchange, self.lane)


class BatchName(NamedTuple):
    """(series, sequence): unique in the mesh, for good. Sequences start at 0."""

    series: Series
    sequence: int

    def __str__(self) -> str:
        s = self.series
        to = ",".join(s.destinations) if s.destinations else "*"
        exchange = s.exchange or "-"
        return f"{s.origin}/{s.incarnation.hex()}/{exchange}.{s.lane}>{to}/{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> BatchName:
        """What `str` made of a name. Raises ValueError for anything else."""
        origin, incarnation, rest = text.split("/", 2)
        rest, sequence = rest.rsplit("/", 1)
        rest, to = rest.rsplit(">", 1)
        exchange, lane = rest.rsplit(".", 1)
        destinations = EVERY_SITE if to == "*" else tuple(to.split(","))
        series = Series(
            origin,
            bytes.fromhex(incarnation),
            "" if exchange == "-" else exchange,
            int(lane),
            destinations,
        )
        return cls(series, int(sequence))


class Predecessor(NamedTuple):
    """An earlier incarnation of the same packer and the last whole-incarnation sequence
    of it that counts; its batches above `end` are void wherever they are met. -1: none counts.
    """

    incarnation: bytes
    end: int


class Fragment(NamedTuple):
    """Which piece of a message too big for one batch. `piece` counts from 0."""

    piece: int
    pieces: int


class HeaderField(NamedTuple):
    """What a later version of the program says besides; one of 128 and above has to be understood
    by whoever reads the batch.
    """

    number: int
    value: bytes


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """Everything readable without opening the entries. Times are milliseconds since 1970."""

    kind: BatchKind
    name: BatchName
    incarnation_sequence: int
    """Position among all batches of the incarnation, the mark included; dense, from 0."""
    predecessors: tuple[Predecessor, ...]
    revision: str
    """Revision of the mesh file under which it was packed."""
    entry_count: int
    byte_count: int
    """Bytes of the entries before compression."""
    total_messages: int
    total_bytes: int
    """Running totals of the incarnation, this batch included: what lag is measured with."""
    first_published_ms: int
    last_published_ms: int
    path: tuple[str, ...]
    """Cluster IDs that have had it, the origin first."""
    fragment: Fragment | None = None
    digest: bytes = b""
    """blake2b-128 of everything but the path; filled by the format."""
    format: int = 1
    """Number of the layout of its bytes."""
    fields: tuple[HeaderField, ...] = ()
    """From format 2 on."""


class Entry(NamedTuple):
    """One message.

    `properties` are the raw AMQP content-header bytes from the property flags on.
    `deadline_ms` is 0 for none. `doubtful`: the packer cannot rule out that it was packed before.
    """

    identity: bytes
    routing_key: bytes
    properties: bytes
    body: bytes
    published_ms: int
    deadline_ms: int = 0
    doubtful: bool = False


make_entry: Callable[[tuple[bytes, bytes, bytes, bytes, int, int, bool]], Entry] = partial(
    tuple.__new__, Entry
)
"""An entry of all its fields, without the detour by Python: made for every message."""


class Place(NamedTuple):
    """Where in a log: the batch's name, and an offset that is at or before its own.

    Offsets alone prove nothing (they have holes and are used again after a truncation), and
    stream confirms carry none; so a place is looked up from `offset` on, by name.
    """

    offset: int
    name: BatchName


class LoggedBatch(NamedTuple):
    """A batch as it stands in a site's log. `data` is the whole of it, header and path included."""

    place: Place
    header: BatchHeader
    data: bytes


class PackedBatch(NamedTuple):
    """A batch that the log has confirmed. A fragment's entry holds its piece of the body."""

    header: BatchHeader
    entries: Sequence[Entry]
