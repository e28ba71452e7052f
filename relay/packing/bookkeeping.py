"""Books of one packer's incarnation, and the acknowledgements that wait for them.

Written down: ledger rows of confirmed batches, and the record, from which a successor learns how
far messages may have been acknowledged and where to begin reading the log. Both are one write, done
before anything covered is acknowledged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from relay import crash_points
from relay.batches.batch import BatchKind, Predecessor
from relay.batches.packed_entries import PackedBatch
from relay.log.run import LogRun
from relay.packing.comeback.past import LATE_S, PackerPast, ResumePointSearch
from relay.packing.egress import EgressQueue
from relay.packing.egress_acks import RemoteAcks
from relay.packing.flow_packer import FlowPacker
from relay.packing.outbox import PackerOutbox
from relay.packing.packer_parts import PackerMemory, PackerParts
from relay.packing.packer_record import Acked, PackerRecord


class Bookkeeping:
    """Rows and record of one incarnation. `memory` learns at once whatever is certain."""

    def __init__(self, incarnation: bytes, parts: PackerParts, memory: PackerMemory) -> None:
        self.read_from = ResumePointSearch()
        self._incarnation = incarnation
        self._parts = parts
        self._memory = memory
        self._confirmed_whole = -1
        self._packed: list[PackedBatch] = []
        self._acked: dict[str, Acked] = {}
        self._past = PackerPast()
        self._in_doubt: set[str] = set()
        self._late_until = -math.inf
        """Time until which messages that predecessors had in hand may come behind fresh ones."""

    @property
    def oldest_published_ms(self) -> int | None:
        """Earliest publish time (ms) in confirmed batches without a row, None without any."""
        return min(
            (
                header.first_published_ms
                for header, _ in self._packed
                if header.kind is not BatchKind.REPAIR  # its row was written when first packed
            ),
            default=None,
        )

    def begin(self, past: PackerPast, partitions: Iterable[str], now: float) -> None:
        """Continue from the past of earlier incarnations, in all these partitions of exchanges."""
        self._past = past
        self._in_doubt = set(past.in_doubt)
        if past.lacks_some:
            self._in_doubt.update(partitions)
        if past.in_order:
            self.read_from.begin(past.read_from)
        else:
            self._late_until = now + LATE_S
            self.read_from.begin(past.read_from, self._late_until)
        self._acked = dict(past.acked)

    def confirmed(self, whole_sequence: int) -> None:
        """Note that the log has this batch, and all before."""
        self._confirmed_whole = whole_sequence
        self._memory.confirmed = Predecessor(self._incarnation, whole_sequence)

    def packed(self, batch: PackedBatch) -> None:
        """Keep the batch for the next record."""
        self._packed.append(batch)

    def take_packed(self) -> list[PackedBatch]:
        """Return the batches that the next record has to cover, and forget them."""
        packed, self._packed = self._packed, []
        return packed

    def acked(self, partition: str) -> Acked | None:
        """Last batch of the partition that may be acknowledged, or None if there is none."""
        return self._acked.get(partition)

    def note_acked(self, flow: FlowPacker, sequence: int) -> bool:
        """Note what is about to be acknowledged; return True if the record has to change."""
        name = flow.exchange.partition
        acked = before = self._acked.get(name)
        if sequence >= 0:
            acked = Acked(self._incarnation, sequence)
        elif flow.recognised and (before is None or before.incarnation != self._incarnation):
            # Messages that only came round later do not undo this incarnation's acknowledgements.
            last = self._past.tail.last(name)
            if last is not None:
                acked = last
        if acked is None or acked == before:
            return False
        self._acked[name] = acked
        return True

    def write(
        self, packed: Sequence[PackedBatch], run: LogRun, flows: Iterable[FlowPacker], now: float
    ) -> None:
        """Write the rows of these batches and the present record. `flows` are all flows."""
        if self._in_doubt and now >= self._late_until:
            self._in_doubt -= {flow.exchange.partition for flow in flows if flow.compared}
        record = PackerRecord(
            self._incarnation,
            self._confirmed_whole,
            self._parts.boot,
            run.log_id,
            *self.read_from.place,
            dict(self._acked),
            frozenset(self._in_doubt),
        )
        self._parts.ledger.record(packed, record.encode())
        self._memory.record = record
        self._memory.same_process = True


class Acknowledging:
    """Acknowledgements of one incarnation, each recorded first. `flows`, `queues` and `remote` are
    the packer's own maps by partition of an exchange, read at each call; `now` returns the event
    loop's time in seconds.
    """

    def __init__(
        self,
        flows: Mapping[str, FlowPacker],
        queues: Mapping[str, EgressQueue],
        remote: Mapping[str, RemoteAcks],
        books: Bookkeeping,
        outbox: PackerOutbox,
        now: Callable[[], float],
    ) -> None:
        self._flows = flows
        self._queues = queues
        self._remote = remote
        self._books = books
        self._outbox = outbox
        self._now = now

    def acknowledge(self, run: LogRun, *, release: bool) -> float | None:
        """Record the confirmed batches and the acknowledgements due, then acknowledge.

        `release`: also the last stretch of each flow, otherwise held back. Returns the time at
        which something held back is due, None if nothing is. Raises EgressClosed, and the ledger's
        errors: then nothing was acknowledged.
        """
        now = self._now()
        due: list[tuple[str, int]] = []
        held: list[float | None] = []
        news = False
        for name, flow in self._flows.items():
            if name not in self._queues:
                continue
            remote = self._remote.get(name)
            if remote is not None and not remote.look(now, flow.recognised, compared=flow.compared):
                held.append(remote.look_again_at)
                continue
            stretch = flow.acks.due(now, release=release)
            if stretch is not None:
                due.append((name, stretch.last_tag))
                news |= self._books.note_acked(flow, stretch.whole_sequence)
            held.append(flow.acks.next_release())
        packed = self._books.take_packed()
        # Messages that only came round are in no batch, so need no record.
        if packed or news or (due and self._advance_read_from()):
            self.write_record(packed, run)
        if due:
            crash_points.reach("packer.recorded")
        for name, tag in due:
            self._queues[name].ack(tag)
        if due:
            crash_points.reach("packer.acknowledged")
        return min((at for at in held if at is not None), default=None)

    def write_record(self, packed: Sequence[PackedBatch], run: LogRun) -> None:
        """Write the rows of these batches and the record, in one write."""
        self._advance_read_from()
        self._books.write(packed, run, self._flows.values(), self._now())

    def write_packed(self, run: LogRun | None) -> None:
        """Write the record if confirmed batches wait for it, as the incarnation ends. Should the
        log lose them, and this process end before its next record, nobody else would notice.
        """
        packed = self._books.take_packed()
        if packed and run is not None:
            self.write_record(packed, run)

    def _advance_read_from(self) -> bool:
        """Move the successor's place to read from past all settled; True if moved."""
        if any(flow.undecided for flow in self._flows.values()):
            return False
        if any(remote.holds_past for remote in self._remote.values()):
            return False  # recognised messages would come back to a log not read so far
        oldest = [
            whole
            for flow in self._flows.values()
            if (whole := flow.acks.oldest_whole_sequence) is not None
        ]
        first_unsettled = min(oldest, default=self._outbox.next_whole)
        return self._books.read_from.advance(self._now(), first_unsettled)
