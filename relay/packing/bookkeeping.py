"""What one incarnation of a packer writes down: rows of what the log confirmed, and the record.

The record says up to where messages may have been acknowledged, and from where a successor reads
the log. Both are one write, done before anything that it tells of is acknowledged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from relay import crash_points
from relay.batches.batch import BatchKind, PackedBatch, Predecessor
from relay.log.run import LogRun
from relay.packing.comeback.past import LATE_S, PackerPast, ResumePointSearch
from relay.packing.egress import EgressQueue
from relay.packing.egress_acks import RemoteAcks
from relay.packing.flow_packer import FlowPacker
from relay.packing.outbox import PackerOutbox
from relay.packing.packer_parts import PackerMemory, PackerParts
from relay.packing.packer_record import Acked, PackerRecord


class Bookkeeping:
    """One incarnation's. `memory` learns at once what is certain."""

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
        """Of what is confirmed and has no row yet; None: there is nothing."""
        return min(
            (
                header.first_published_ms
                for header, _ in self._packed
                if header.kind is not BatchKind.REPAIR  # it was told of when it was packed first
            ),
            default=None,
        )

    def begin(self, past: PackerPast, exchanges: Iterable[str], now: float) -> None:
        """Go on from what those before left, in all these exchanges."""
        self._past = past
        self._in_doubt = set(past.in_doubt)
        if past.lacks_some:
            self._in_doubt.update(exchanges)
        if past.in_order:
            self.read_from.begin(past.read_from)
        else:
            self._late_until = now + LATE_S
            self.read_from.begin(past.read_from, self._late_until)
        self._acked = dict(past.acked)

    def confirmed(self, whole_sequence: int) -> None:
        """The log has this batch, and all before it."""
        self._confirmed_whole = whole_sequence
        self._memory.confirmed = Predecessor(self._incarnation, whole_sequence)

    def packed(self, batch: PackedBatch) -> None:
        """To be written down with the next record."""
        self._packed.append(batch)

    def take_packed(self) -> list[PackedBatch]:
        """What is to be written down; it is not kept here any more."""
        packed, self._packed = self._packed, []
        return packed

    def acked(self, exchange: str) -> Acked | None:
        """Up to where the exchange's messages may have been acknowledged."""
        return self._acked.get(exchange)

    def note_acked(self, flow: FlowPacker, sequence: int) -> bool:
        """Whether the record has to say more than it did."""
        name = flow.exchange.name
        acked = before = self._acked.get(name)
        if sequence >= 0:
            acked = Acked(self._incarnation, sequence)
        elif flow.recognised and (before is None or before.incarnation != self._incarnation):
            # What only came round afterwards takes nothing back of what this run has acknowledged.
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
        """The rows of these, and the record as it is now. `flows` are all that run."""
        if self._in_doubt and now >= self._late_until:
            self._in_doubt -= {flow.exchange.name for flow in flows if flow.compared}
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
    """One incarnation's acknowledgements. `flows`, `queues` and `remote` are the packer's own maps
    by exchange, read at each call; `now` is the event loop's time in seconds.
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
        """Record what is confirmed and what is about to be acknowledged, then acknowledge.

        `release`: also the last stretch of each flow, which is held back otherwise. Returns the
        time at which something that is held back is due, None if nothing is. Raises EgressClosed,
        and what the ledger raises: then nothing was acknowledged.
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
        # What only came round is in no batch that a record could tell of.
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

    def _advance_read_from(self) -> bool:
        """Move the place from which a successor reads the log, if all before it is settled.
        Whether it moved.
        """
        if any(flow.undecided for flow in self._flows.values()):
            return False
        if any(remote.holds_past for remote in self._remote.values()):
            return False  # what was recognised would come back to a log that is not read so far
        oldest = [
            whole
            for flow in self._flows.values()
            if (whole := flow.acks.oldest_whole_sequence) is not None
        ]
        first_unsettled = min(oldest, default=self._outbox.next_whole)
        return self._books.read_from.advance(self._now(), first_unsettled)
