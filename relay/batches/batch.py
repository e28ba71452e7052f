"""Batches, their names and their entries: frozen values without behaviour of their own.

A *batch* is up to 256 messages of one flow, compressed once at the origin. Sites in between read
its header only. Duplicates, gaps and resumption all follow from the batch's name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from federation.partitions import partition_name, partition_of

EVERY_SITE: tuple[str, ...] = ()
"""Destination set of a batch for every site of the mesh."""

MAX_ENTRIES = 256
"""Most messages in a batch; also how far a deliverer publishes ahead of its commit."""


class BatchKind(IntEnum):
    """Kind of content."""

    MESSAGES = 1
    FRAGMENT = 2
    MARK = 3
    CANARY = 4
    REPAIR = 5


class Flow(NamedTuple):
    """Unit of order and of waiting: an origin's exchange and lane; of a partition of an exchange,
    too, which is part of the lane's number.
    """

    origin: str
    exchange: str
    lane: int

    @property
    def partition(self) -> str:
        """Name of the exchange's partition, whatever the lane."""
        return partition_name(self.exchange, partition_of(self.lane))


class Series(NamedTuple):
    """A batch's name without its sequence, which is dense inside a series.

    `origin` and `destinations` are cluster IDs; `destinations` is sorted, and `EVERY_SITE` stands
    for all sites. `incarnation` is 8 random bytes, drawn by a packer at its start.
    """

    origin: str
    incarnation: bytes
    exchange: str
    lane: int
    destinations: tuple[str, ...]

    @property
    def flow(self) -> Flow:
        return Flow(self.origin, self.exchange, self.lane)

    @property
    def partition(self) -> str:
        """Name of the exchange's partition, whatever the lane."""
        return self.flow.partition


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
        """Read a name as `str` writes it. Raises ValueError for any other text."""
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
    """An earlier incarnation of the same packer and its last incarnation sequence that counts (-1:
    none); batches of the incarnation above `end` are void wherever they are met.
    """

    incarnation: bytes
    end: int


class Fragment(NamedTuple):
    """Number of a piece, from 0, of a message too big for one batch."""

    piece: int
    pieces: int


class HeaderField(NamedTuple):
    """Header field of a later version of the program; readers must understand fields from 128
    on.
    """

    number: int
    value: bytes


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """All that can be read without opening the entries. Times are milliseconds since 1970."""

    kind: BatchKind
    name: BatchName
    incarnation_sequence: int
    """Position among all batches of the incarnation, the mark included; dense, from 0."""
    predecessors: tuple[Predecessor, ...]
    revision: str
    """Revision of the mesh file under which the batch was packed."""
    entry_count: int
    byte_count: int
    """Bytes of the entries before compression."""
    total_messages: int
    total_bytes: int
    """Running totals of the incarnation, this batch included: the measure of lag."""
    first_published_ms: int
    last_published_ms: int
    path: tuple[str, ...]
    """Cluster IDs of the sites that have had the batch, the origin first."""
    fragment: Fragment | None = None
    digest: bytes = b""
    """blake2b-128 of all but the path; filled in by the format."""
    format: int = 1
    """Number of the byte layout."""
    fields: tuple[HeaderField, ...] = ()
    """Header fields, from format 2 on."""
    content: bytes = field(default=b"", compare=False)
    """Hash of the whole message's content, for a piece that this process has packed; never part of
    the batch's bytes."""


class Entry(NamedTuple):
    """A message.

    `properties` are the raw AMQP content-header bytes from the property flags on. `deadline_ms` is
    0 for none. `doubtful`: the packer cannot rule out that the message was packed before.
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
"""Make an entry of all its fields without Python's `__new__`: called for every message."""


class Place(NamedTuple):
    """Place in a log: a batch's name, and an offset at or before the batch's own.

    Offsets alone prove nothing (they have holes and are used again after a truncation), and stream
    confirms carry none; so a place is looked up by name, from `offset` on.
    """

    offset: int
    name: BatchName


class LoggedBatch(NamedTuple):
    """A batch in a site's log. `data` is the whole batch, header and path included."""

    place: Place
    header: BatchHeader
    data: bytes


class BatchHead(bytes):
    """First bytes of a batch, header included, whose other bytes are gone; `reason` says why."""

    reason: str

    @classmethod
    def of(cls, data: bytes, reason: str) -> BatchHead:
        head = cls(data)
        head.reason = reason
        return head
