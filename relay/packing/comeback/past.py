"""The past of a packer's incarnation, read once from log and record when the incarnation begins.

Where earlier incarnations ended, which of their messages egress may hand out again, and how far
these were surely acknowledged.

Also the *resume point*, from which a successor has to read the log: as late as possible, with
everything behind that egress may still hand out. Every half second the packer notes the log's place
and the last batch handed to the log by then: each later batch stands behind that place. A note
becomes the resume point once all those batches have been settled for a while, since an
acknowledgement may be lost with its connection.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from relay.batches.batch import BatchHeader, BatchKind, BatchName, LoggedBatch, Predecessor
from relay.batches.format import BadBatch, decode_entries
from relay.batches.fragments import FragmentMismatch
from relay.batches.incarnation import OwnHistory, is_mark
from relay.batches.packed_entries import PackedBatch, without_bodies
from relay.packing.comeback.logged_tail import AckedUpTo, LoggedTail, TailSearch
from relay.packing.comeback.returned_any_order import ReturnedInAnyOrder
from relay.packing.comeback.returned_apart import Named, ReturnedApart
from relay.packing.comeback.returned_prefix import ReturnedMessages, ReturnedPrefix
from relay.packing.packer_parts import IncarnationEnded, PackerLog, PackerMemory, PackerParts
from relay.packing.packer_record import Acked, PackerRecord

SETTLED_S = 30.0
"""Age at which an acknowledgement on a living connection is certain to have arrived."""
LATE_S = 150.0
"""Longest time before a cluster gives back a lost consumer's messages: RabbitMQ misses a node after
60 to 75 s (`net_ticktime`), and 4.3 keeps its consumers' messages for 60 s more unless the queue's
`consumer_disconnected_timeout` differs, as for an egress made before the cluster."""
_WORTH_SEEKING = 1_000
"""Number of records that cost more to read through than a new reader behind them."""
_WITH_ROWS = frozenset({BatchKind.MESSAGES, BatchKind.FRAGMENT, BatchKind.REPAIR})


class ResumePoint(NamedTuple):
    """Log offset for a successor to read from; batches up to `after` may stand before."""

    offset: int = 0
    after: int = -1


@dataclass(slots=True)
class _Note:
    at: float
    offset: int
    appended: int


class ResumePointSearch:
    """Search for the resume point, over one incarnation. Times in seconds."""

    def __init__(self) -> None:
        self.place = ResumePoint()
        self._hold_until = -math.inf
        self._settled_s = SETTLED_S
        self._notes: deque[_Note] = deque()

    def begin(self, place: ResumePoint, late_until: float | None = None) -> None:
        """Begin at the place behind which all messages of predecessors stand. At a cluster more of
        these may come back until `late_until`: the point stays until acknowledgements of the last
        are settled, and a lost node may have swallowed acknowledgements for as long.
        """
        self.place = place
        if late_until is not None:
            self._hold_until = late_until + LATE_S
            self._settled_s = LATE_S

    def note(self, now: float, offset: int, appended: int) -> None:
        """Note the log's `offset`, with this incarnation's batches up to `appended` handed over."""
        self._notes.append(_Note(now, offset, appended))

    def advance(self, now: float, first_unsettled: int) -> bool:
        """Advance, given that all before `first_unsettled` is settled; True if moved."""
        before = self.place
        if now < self._hold_until:
            return False
        while self._notes and self._notes[0].at <= now - self._settled_s:
            if self._notes[0].appended >= first_unsettled:
                break
            note = self._notes.popleft()
            self.place = ResumePoint(note.offset, note.appended)
        return self.place != before


@dataclass(slots=True)
class PackerPast:
    """The past as of the incarnation's beginning."""

    predecessors: tuple[Predecessor, ...] = ()
    tail: LoggedTail = field(default_factory=LoggedTail)
    """Last messages in the log, by partition of an exchange."""
    order: dict[bytes, int] = field(default_factory=dict)
    """Incarnations in the order of the log."""
    in_order: bool = True
    """True if egress hands out again in order: see `Egress.returns_in_order`."""
    acked: dict[str, Acked] = field(default_factory=dict)
    """Batch up to which messages may have been acknowledged, by partition."""
    trusted: bool = False
    """True if messages that `acked` does not cover were certainly never acknowledged."""
    lost_tail: bool = False
    """True if the log lacks batches that it once confirmed."""
    lost_head: bool = False
    """True if retention has taken batches whose messages egress may hand out again."""
    lost_power: bool = False
    """True if confirmed batches may be lost unnoticed: neither log nor record is synced at once,
    and the machine went off under the last incarnation."""
    in_doubt: frozenset[str] = frozenset()
    """Partitions whose messages had not all come again when a doubtful incarnation ended."""
    read_from: ResumePoint = field(default_factory=ResumePoint)
    """First batch that was read; nothing of the new incarnation stands before."""
    unrecorded: list[PackedBatch] = field(default_factory=list)
    """Batches in the log that the record did not cover yet, so that the ledger lacks their rows.
    Without bodies. After a power cut these go beyond the tails: everything since the last sync."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Batch that could not be read, by partition. Its messages, should they come back, count as
    new; the deliverers quarantine the batch."""

    def returned(
        self,
        partition: str,
        acked: Acked | None,
        named: Named,
        *,
        is_addressed: bool = False,
    ) -> ReturnedMessages:
        """Build the comparison for messages of a partition, acknowledged up to `acked`, that egress
        hands out again. `named` is true for properties that carry an identity; `is_addressed`:
        destinations follow from the key.
        """
        lacks_some = self.lacks_some or partition in self.in_doubt
        surely = self.tail.after(partition, self._acked_up_to(acked)) if self.trusted else 0
        tail = self.tail.entries(partition)
        if not self.in_order:
            return ReturnedInAnyOrder(tail, surely, named, log_lacks_some=lacks_some)
        if is_addressed or self.tail.is_spread(partition):
            return ReturnedApart(tail, surely, named, log_lacks_some=lacks_some)
        return ReturnedPrefix(tail, surely, log_lacks_some=lacks_some)

    @property
    def lacks_some(self) -> bool:
        """True if the log may have lost messages that egress hands out again."""
        return self.lost_tail or self.lost_head or self.lost_power

    @property
    def losses(self) -> str:
        """Clauses, for a warning, on what the log has lost or may have lost; mostly empty."""
        return (
            (", which lost its tail" if self.lost_tail else "")
            + (", of which retention took the head" if self.lost_head else "")
            + (", whose end the machine may have lost" if self.lost_power else "")
        )

    def _acked_up_to(self, acked: Acked | None) -> AckedUpTo:
        def may_be_acked(incarnation: bytes, whole_sequence: int) -> bool:
            if acked is None:
                return False
            if incarnation == acked.incarnation:
                return whole_sequence <= acked.sequence
            # An incarnation missing from the order is older than everything read.
            return self.order.get(incarnation, -1) < self.order.get(acked.incarnation, -1)

        return may_be_acked

    def sent_of_last(self, partition: str, count: int) -> list[BatchName]:
        """Names of the batches with the partition's last messages that other sites should have."""
        if count and (not self.in_order or self.tail.is_spread(partition)):
            # Returned messages are anywhere in the tail; but a neighbour had the acknowledged
            # ones, except at a cluster, where an earlier incarnation's messages come late.
            acked = self.acked.get(partition) if self.trusted and self.in_order else None
            names = self.tail.batches_not(partition, self._acked_up_to(acked))
        else:
            names = self.tail.batches_of_last(partition, count)
        return [name for name in names if name.series.destinations != (name.series.origin,)]


async def read_past(
    cluster_id: str,
    incarnation: bytes,
    parts: PackerParts,
    memory: PackerMemory,
    last: Predecessor | None,
    log_id: bytes,
    *,
    in_order: bool,
) -> PackerPast:
    """Read the log up to our mark, from where anything may still be unacknowledged.

    `last` is the last confirmed batch known before; `in_order`: egress hands out again in order.
    Reads twice, see `logged_tail`. Raises IncarnationEnded where the mark is missing.
    """
    record = memory.record
    read_from, read_after = (0, -1) if record is None else (record.read_from, record.read_after)
    checked = parts.log.checked
    last_offset = 0 if checked is None else checked.offset  # of our mark
    # A log that lost its tail may end before the place, and use its offsets again.
    read_from = min(read_from, last_offset)
    history = OwnHistory(cluster_id, last, read_after, parts.voids.ended(cluster_id))
    past = PackerPast(tail=LoggedTail(per_incarnation=not in_order), in_order=in_order)
    search = TailSearch(per_incarnation=not in_order)
    unrecorded: list[int] = []
    first_offset: int | None = None
    async for batch in _until_mark(parts.log, incarnation, read_from):
        if first_offset is None:
            first_offset = batch.place.offset
        if batch.header.name.series.origin != cluster_id:
            continue
        history.take(batch.header)
        search.take(batch.place.offset, batch.header)
        if not _is_recorded(record, batch.header):
            unrecorded.append(batch.place.offset)
    needed = search.needed(history.counts)
    wanted = {*chain.from_iterable(needed.values()), *unrecorded}
    async for batch in _standing_at(parts.log, incarnation, wanted):
        header, offset = batch.header, batch.place.offset
        series = header.name.series
        if history.counts(series.incarnation, header.incarnation_sequence):
            in_tail = offset in needed.get(series.partition, ())
            _remember(past, batch, in_tail=in_tail, is_recorded=_is_recorded(record, header))
    past.predecessors = history.predecessors()
    past.order = {name: number for number, name in enumerate(history.order)}
    past.lost_tail = history.lost_its_tail() or (record is not None and record.log_id != log_id)
    if first_offset is None:
        first_offset = last_offset
    # A batch once stood at the record's `read_from`; 0: there was no record yet.
    past.lost_head = read_from > 0 and first_offset != read_from
    past.read_from = ResumePoint(first_offset)
    same_machine = memory.same_process or (record is not None and record.boot == parts.boot)
    past.in_doubt = frozenset() if record is None else record.in_doubt
    may_be_lost = record is not None and not same_machine and not parts.was_clean
    past.lost_power = may_be_lost and parts.shares_power
    past.trusted = not past.lacks_some and same_machine and _is_the_last(record, history)
    past.acked = _acked_before(past, record)
    return past


async def _until_mark(
    log: PackerLog, incarnation: bytes, from_offset: int
) -> AsyncGenerator[LoggedBatch, None]:
    """Yield all batches before our mark, of any origin."""
    async for batches in log.read_to_end(from_offset):
        for batch in batches:
            if is_mark(batch.header, incarnation):
                return
            yield batch
    raise IncarnationEnded("the log was read to its end and does not show the mark")


async def _standing_at(
    log: PackerLog, incarnation: bytes, offsets: Collection[int]
) -> AsyncIterator[LoggedBatch]:
    """Yield the batches at these offsets, in order. The tails of several incarnations lie far
    apart, with minutes of the log between that are skipped.
    """
    left = deque(sorted(offsets))
    while left:
        async with aclosing(_until_mark(log, incarnation, left[0])) as batches:
            async for batch in batches:
                offset = batch.place.offset
                if offset < left[0]:
                    continue
                while left and left[0] < offset:
                    left.popleft()  # taken by retention since the first reading
                if left and left[0] == offset:
                    left.popleft()
                    yield batch
                if not left or left[0] > offset + _WORTH_SEEKING:
                    break
            else:
                return


def _is_recorded(record: PackerRecord | None, header: BatchHeader) -> bool:
    """True if the write with the batch's ledger row, which also advanced the record, was done.

    Each incarnation has a record on the disk before its first batch. An incarnation that did not
    write this record wrote another, into another state folder, with rows of its own.
    """
    if header.kind not in _WITH_ROWS:
        return True
    if record is None or header.name.series.incarnation != record.incarnation:
        return True
    return header.incarnation_sequence <= record.end


def _remember(past: PackerPast, batch: LoggedBatch, *, in_tail: bool, is_recorded: bool) -> None:
    try:
        if in_tail:
            past.tail.add(batch.header, batch.data)
        if not is_recorded:
            entries = without_bodies(decode_entries(batch.data))
            past.unrecorded.append(PackedBatch(batch.header, entries))
    except (BadBatch, FragmentMismatch) as error:
        past.unreadable[batch.header.name.series.partition] = f"{batch.header.name}: {error}"


def _is_the_last(record: PackerRecord | None, history: OwnHistory) -> bool:
    """True if no incarnation packed after the record. A later incarnation without a record here
    means that an old state folder was put back.
    """
    if record is None:
        return False
    later = history.order
    if record.incarnation in later:
        later = later[later.index(record.incarnation) + 1 :]
    return not any(history.packed_anything(incarnation) for incarnation in later)


def _acked_before(past: PackerPast, record: PackerRecord | None) -> dict[str, Acked]:
    if past.trusted and record is not None:
        return dict(record.acked)
    acked: dict[str, Acked] = {}
    for partition in past.tail.partitions:
        last = past.tail.last(partition)
        if last is not None:
            acked[partition] = last
    return acked
