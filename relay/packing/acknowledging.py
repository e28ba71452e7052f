"""Acknowledgements on egress: which messages are due, and the record that is written before.

The record is written first, so that a successor knows of whatever may have been acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from relay import crash_points
from relay.batches.batch import PackedBatch
from relay.log.run import LogRun
from relay.packing.bookkeeping import Bookkeeping
from relay.packing.egress import EgressQueue
from relay.packing.flow_packer import FlowPacker
from relay.packing.outbox import PackerOutbox
from relay.packing.remote_acks import RemoteAcks


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
