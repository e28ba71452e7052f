"""A stretch of the log as it was read once, kept for all readers that come through.

Headers are parsed once. A reader takes slices of a stretch by bytes, finds its place by offset or
name, and never looks at each batch: three hundred readers would look three hundred times.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter

from relay.batches.batch import BatchName, LoggedBatch, Place
from relay.batches.format import BadBatch, UnknownFormat, read_header
from relay.log.site_log import Record

STRETCH_BYTES = 128 * 1024
"""Bytes of a full stretch: large enough to pass a log of small batches in a few steps, small enough
to be forgotten singly."""
OVERHEAD_BYTES = 1024
"""Memory of a batch beside its data: header, names and places as Python objects."""

_offset_of = attrgetter("place.offset")


class Stretch:
    """All batches of the log from offset `start` on and before `end`; grows while it is the last of
    its scan. `before` is the cost of what the scan had read before; stretches read later have a
    greater `age`.
    """

    __slots__ = (
        "_bytes_to",
        "_numbers",
        "age",
        "batches",
        "before",
        "cost",
        "eaten_to",
        "end",
        "start",
        "unknown",
    )

    def __init__(self, start: int, before: int, age: int) -> None:
        self.start = start
        self.end = start
        self.eaten_to = start
        """Offset before which retention may have eaten records from `start` on."""
        self.before = before
        self.age = age
        self.cost = 0
        """Bytes of memory, estimated."""
        self.batches: list[LoggedBatch] = []
        self.unknown = False
        """True if the stretch ends with a batch that only another version can read."""
        self._bytes_to: list[int] = [0]
        self._numbers: dict[BatchName, int] | None = None

    def cost_to(self, number: int) -> int:
        """Bytes of memory of the first `number` batches."""
        return self._bytes_to[number] + OVERHEAD_BYTES * number

    @property
    def is_full(self) -> bool:
        """True if the next record begins another stretch."""
        return self.unknown or self.cost >= STRETCH_BYTES

    def add(self, record: Record, newest_format: int) -> None:
        """Add the next record. A record that is no batch is passed over: the writer's check, which
        reads everything once, reports it.
        """
        self.end = record.offset + 1
        if record.flaw:
            return
        try:
            header = read_header(record.data, newest_format)
        except UnknownFormat:
            self.unknown = True
            return
        except BadBatch:
            return
        batch = LoggedBatch(Place(record.offset, header.name), header, record.data)
        self.batches.append(batch)
        size = len(record.data)
        self._bytes_to.append(self._bytes_to[-1] + size)
        self.cost += size + OVERHEAD_BYTES
        self._numbers = None

    def first_from(self, offset: int) -> int:
        """Number of the first batch at or after `offset`, or behind the last."""
        return bisect_left(self.batches, offset, key=_offset_of)

    def offset_at(self, number: int) -> int:
        """Offset at which reading on from this batch begins."""
        return self.batches[number].place.offset if number < len(self.batches) else self.end

    def fitting(self, number: int, max_bytes: int) -> int:
        """Number behind the last batch that fits into `max_bytes` with those from `number` on."""
        return bisect_right(self._bytes_to, self._bytes_to[number] + max_bytes) - 1

    def bytes_between(self, number: int, end: int) -> int:
        """Bytes of the batches from `number` on and before `end`."""
        return self._bytes_to[end] - self._bytes_to[number]

    def find(self, name: BatchName, number: int) -> int | None:
        """Number of the batch of this name, not before `number`, or None."""
        if self._numbers is None:
            self._numbers = {b.place.name: n for n, b in enumerate(self.batches)}
        last = self._numbers.get(name)  # the last of several copies
        if last is None or last < number:
            return None
        return next(n for n in range(number, last + 1) if self.batches[n].place.name == name)
