"""One incarnation of a site's packer: egress -> batches -> the site's log -> acknowledgements.

In order: take the lock and let a former holder's last bytes arrive; append the mark; read the log
up to the mark, for batches already logged and the ends of earlier incarnations; append the
statement of those ends; write the record, synced; only then ask for messages. An incarnation ends
with its egress connection, its connection to the log, or a stop; `packer_loop` makes the next.

Messages are acknowledged when the log has confirmed their batch and the record covers them.

`comeback.past` reads back, `outbox` appends, `bookkeeping` writes down and acknowledges. The rest
is one piece, long as it is: every step and timer checks before acting that the incarnation has not
ended and the lock is still ours.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from federation.mesh import AckRule
from relay import crash_points, ticks
from relay.batches.batch import BatchKind, Predecessor
from relay.batches.packed_entries import PackedBatch
from relay.log.run import LogRun
from relay.log.site_log import UNCONFIRMED_S
from relay.packing.bookkeeping import Acknowledging, Bookkeeping
from relay.packing.comeback.past import PackerPast, read_past
from relay.packing.egress import (
    Egress,
    EgressClosed,
    EgressError,
    EgressMessage,
    EgressQueue,
    QueueMissing,
)
from relay.packing.egress_acks import WAITING, RemoteAcks
from relay.packing.flow_packer import FlowPacker, Parcel
from relay.packing.intake import Intake
from relay.packing.lock_lease import Lease
from relay.packing.outbox import Confirmed, PackerOutbox
from relay.packing.packer_metrics import PackerMetrics, PackerState, PackerStatus, StageTimes
from relay.packing.packer_parts import IncarnationEnded, PackerMemory, PackerParts
from relay.packing.packer_settings import PackedExchange, PackerSettings
from relay.packing.requested_parcels import NotPacking, RequestedParcel

log = logging.getLogger(__name__)

TICK_S = 0.5
ACK_S = 0.05
"""Delay after which confirmed batches are recorded and acknowledged: a write and an acknowledgement
for each batch would cost this node, and the broker, as much as the small batches themselves."""
FULL_ACK_S = 0.01
FULL_ACK_TAGS = 500
"""Number of messages taken and not acknowledged from which on the delay is `FULL_ACK_S`: a quarter
of the prefetch, so that egress never waits for an acknowledgement."""
PASSED_S = 0.02
PASSED_TAGS = 250
"""Number of messages, or `PASSED_S` the delay, after which messages that only come round are
acknowledged: an acknowledgement costs an egress queue as much as a message, and the prefetch leaves
room for many more."""
WAITS_S = 2.0
"""Wait for a neighbour's log before the status mentions the wait: most links are faster."""


class Packer:
    """One incarnation. `run` returns after `stop`; otherwise raises IncarnationEnded. `on_locked`
    is called once the lock is taken, `on_decided` once the statement stands in the log.
    """

    def __init__(
        self,
        settings: PackerSettings,
        parts: PackerParts,
        memory: PackerMemory,
        metrics: PackerMetrics,
        status: PackerStatus,
        on_locked: Callable[[], None],
        on_decided: Callable[[], None],
    ) -> None:
        self.incarnation = parts.random_bytes(8)
        self._settings = settings
        self._parts = parts
        self._memory = memory
        self._metrics = metrics
        self._status = status
        self._on_locked = on_locked
        self._on_decided = on_decided
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[str] = self._loop.create_future()
        self._stopping = asyncio.Event()
        self._egress: Egress | None = None
        self._flows: dict[str, FlowPacker] = {}
        self._remote: dict[str, RemoteAcks] = {}  # by partition, with `acks: remote`
        self._queues: dict[str, EgressQueue] = {}
        self._answered: set[str] = set()  # partitions with a queue, or known to lack one
        self._run: LogRun | None = None
        self._outbox = PackerOutbox(
            settings,
            self.incarnation,
            parts.log,
            self._may_not_append,
            self._on_confirmed,
            self._on_append_failed,
        )
        self._books = Bookkeeping(self.incarnation, parts, memory)
        self._acks = Acknowledging(
            self._flows, self._queues, self._remote, self._books, self._outbox, self._loop.time
        )
        self._past = PackerPast()
        self._linger: asyncio.TimerHandle | None = None
        self._release: asyncio.TimerHandle | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._settling: asyncio.TimerHandle | None = None
        self._settles_at = 0.0  # uvloop's handles do not know their time once due
        self._moving_on = False
        self._paused = False
        self._lease = Lease(self._loop.time(), settings.silence_s, settings.stall_s)
        self._drained = asyncio.Event()
        self._finished = False
        """True once everything taken is in the log and recorded."""

    # --- life ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Pack until `stop`. Raises IncarnationEnded, EgressError, SiteLogError."""
        self._metrics.incarnations += 1
        times = StageTimes(self._loop.time)
        tasks: list[asyncio.Task[None]] = []
        try:
            self._egress = await self._parts.connect()
            times.end("connection")
            # Anew, since connecting took time in which there was no lock to lose.
            self._lease = Lease(self._loop.time(), self._settings.silence_s, self._settings.stall_s)
            self._egress.closed.add_done_callback(self._on_egress_closed)
            tasks.append(self._loop.create_task(self._tick()))
            await self._unless_ended(self._begin(times))
            site = self._settings.cluster_id
            log.info("%s: packing begins after %s", site, times, extra={"event": "packing-began"})
            # While paused no queue answers, so messages that may come back stay remembered.
            for exchange in () if self._settings.paused else self._settings.exchanges:
                tasks.append(self._loop.create_task(self._consume(exchange)))
            self._parts.neighbours.on_news = self._on_neighbours_news
            self._status.state, self._status.reason = PackerState.RUNNING, ""
            await self._unless_ended(self._stopping.wait())
            await self._finish()
        except IncarnationEnded:
            self._acks.write_packed(self._run)
            raise
        finally:
            self._parts.neighbours.on_news = None
            for task in tasks:
                task.cancel()
            for timer in (self._linger, self._release, self._patience, self._settling):
                if timer is not None:
                    timer.cancel()
            self._end("over")
            self._outbox.give_up()
            if self._egress is not None:
                await self._egress.close(patient=self._finished)  # first: it has the lock
            await asyncio.gather(*tasks, return_exceptions=True)

    def stop(self) -> None:
        """Take no more, append and acknowledge everything in hand, and return from `run`."""
        self._stopping.set()

    @property
    def recorded_before_ms(self) -> int:
        """Time (ms) such that every message published before has its row; -1 if unknown. A message
        counts as published when taken off egress.
        """
        record = self._memory.record
        if record is None or record.incarnation != self.incarnation:
            return -1  # logged batches of predecessors may lack their rows
        if self._ended.done() and not self._finished:
            return -1  # batches on their way into the log may have arrived
        oldest = [
            *(flow.oldest_published_ms for flow in self._flows.values()),
            self._outbox.oldest_published_ms,
            self._books.oldest_published_ms,
        ]
        return min([self._parts.now_ms(), *(ms for ms in oldest if ms is not None)])

    def at_revision(self, revision: str) -> None:
        """Adopt a new revision of the mesh that changes nothing in what is packed."""
        self._outbox.revision = revision

    def put(self, parcel: RequestedParcel) -> None:
        """Put the parcel into the log behind whatever is sealed. Raises NotPacking."""
        if self._status.state is not PackerState.RUNNING or self._ended.done():
            raise NotPacking(self._status.reason or "the packer is starting")
        if self._settings.paused:
            raise NotPacking("the site is paused, or its log is full: see `isthmus status`")
        self._outbox.add(parcel)
        self._outbox.pump()

    def superseded(self, by: str) -> None:
        """End: the log shows another packer of this site."""
        self._end(f"another packer writes this site's log: {by}")

    def _end(self, reason: str) -> None:
        if not self._ended.done():
            self._ended.set_result(reason)

    def _on_append_failed(self, reason: str) -> None:
        self._end(f"log: {reason}")

    def _on_queue_ended(self, exchange: str, reason: str) -> None:
        self._end(f"egress of {exchange!r}: {reason}")

    def _on_egress_closed(self, closed: asyncio.Future[str]) -> None:
        if closed.cancelled():
            return
        self._end(f"egress: {closed.result()}")
        oldest_ms = self._outbox.oldest_published_ms
        if self._is_alone or oldest_ms is None or self._parts.log.run is not self._run:
            return  # the log has a new connection already, or would get one to the same node
        # At a cluster the lease may have ended for want of a majority, with the log's leader on
        # the same side of the cut.
        waits_ms = self._parts.now_ms() - oldest_ms
        if waits_ms > 1000 * UNCONFIRMED_S:
            self._parts.log.give_up(f"nothing is confirmed for {waits_ms // 1000} s")

    @property
    def _is_alone(self) -> bool:
        """True where the site's broker has one node: another connection would lead to the same."""
        return self._egress is None or self._egress.returns_in_order

    async def _unless_ended(self, step: Awaitable[Any]) -> None:
        """Wait for the step; raise IncarnationEnded if the incarnation ends first."""
        task = asyncio.ensure_future(step)
        try:
            await asyncio.wait((task, self._ended), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            if self._ended.done():
                raise IncarnationEnded(self._ended.result())
        finally:
            task.cancel()
            # Also when done: if we are cancelled, nobody has looked at the exception.
            await asyncio.gather(task, return_exceptions=True)

    # --- the beginning ------------------------------------------------------------------------

    async def _begin(self, times: StageTimes) -> None:
        egress = self._egress
        assert egress is not None
        # Before the lock: a node without the log must not keep the lock from a node with it.
        self._run = await self._parts.log.running()
        times.end("log")
        await egress.take_lock()
        self._on_locked()
        if not self._parts.was_answered or self._memory.has_locked:
            await asyncio.sleep(self._settings.settle_s)
        self._memory.has_locked = True
        while not await self._parts.former_gone():
            self._status.reason = "waiting for the former holder's channels to end"
            await asyncio.sleep(self._settings.settle_s / 4)
        times.end("lock")
        record = self._memory.record
        last = self._memory.confirmed
        if last is None and record is not None:
            last = Predecessor(record.incarnation, record.end)
        self._parts.voids.deciding(
            self._settings.cluster_id,
            self.incarnation,
            {} if last is None else {last.incarnation: last.end},
        )
        await self._append_mark()
        # Bytes in a former incarnation's socket may have landed beside this node's appends: all
        # readers of the log go back for them before the first message of this incarnation.
        await self._parts.log.check_now()
        times.end("mark")
        past = await read_past(
            self._settings.cluster_id,
            self.incarnation,
            self._parts,
            self._memory,
            last,
            self._run.log_id,
            in_order=egress.returns_in_order,
        )
        times.end("reading back")
        self._past = past
        self._books.begin(
            past, (exchange.partition for exchange in self._settings.exchanges), self._loop.time()
        )
        self._outbox.predecessors = past.predecessors
        self._status.exchanges.update(past.unreadable)
        await self._append_mark()
        self._parts.voids.decided(past.predecessors)
        self._acks.write_record(past.unrecorded, self._run)
        past.unrecorded = []
        self._on_decided()
        # Otherwise a power cut could take every record of this incarnation, and its successor
        # would not know that rows are gone too.
        await self._parts.ledger.synced()
        times.end("statement")

    async def _append_mark(self) -> None:
        """Append the mark, or later the statement: a mark with the ends known by then."""
        if self._may_not_append():
            raise IncarnationEnded(self._ended.result())
        mark = self._outbox.append_mark(self._parts.now_ms())
        try:
            async with asyncio.timeout(None if self._is_alone else UNCONFIRMED_S):
                self._books.confirmed(await mark)
        except TimeoutError:
            # The lease was proven just now: the cluster has a majority and takes publishes.
            reason = f"nothing is confirmed for {UNCONFIRMED_S:g} s, as by a leader cut off"
            self._parts.log.give_up(reason)
            raise IncarnationEnded(f"log: {reason}") from None
        crash_points.reach("packer.marked")

    # --- taking -------------------------------------------------------------------------------

    async def _consume(self, exchange: PackedExchange) -> None:
        """Consume one queue, retrying while missing; any other error ends the incarnation."""
        assert self._egress is not None
        try:
            while True:
                flow = self._flow_packer(exchange)
                self._flows[exchange.partition] = flow
                if exchange.acks is AckRule.REMOTE:
                    self._remote[exchange.partition] = self._remote_acks(exchange)
                try:
                    self._queues[exchange.partition] = await self._egress.consume(
                        exchange.queue,
                        partial(self._take, flow),
                        partial(self._on_queue_ended, exchange.partition),
                    )
                    self._status.exchanges.pop(exchange.partition, None)
                    self._answered.add(exchange.partition)
                    self._settle_soon()  # for messages that came before the answer
                    return
                except QueueMissing as error:
                    self._status.exchanges[exchange.partition] = str(error)
                    if not error.is_away:  # its messages come back with its node
                        self._answered.add(exchange.partition)
                    await asyncio.sleep(self._settings.missing_retry_s)
        except EgressError as error:
            self._on_queue_ended(exchange.partition, str(error))

    def _flow_packer(self, exchange: PackedExchange) -> FlowPacker:
        intake = Intake(
            exchange.name,
            exchange.identity,
            (self._settings.relay_user, *self._settings.former_users),
            self._parts.random_bytes,
            comes_round=exchange.comes_round,
        )
        returned = self._past.returned(
            exchange.partition,
            self._books.acked(exchange.partition),
            intake.names_itself,
            is_addressed=exchange.addressing is not None,
        )
        return FlowPacker(
            exchange,
            self._settings,
            intake,
            returned,
            self._outbox.add,
            self._parts.now_ms,
            self._metrics,
        )

    def _remote_acks(self, exchange: PackedExchange) -> RemoteAcks:
        return RemoteAcks(
            self._parts.neighbours.has,
            partial(self._past.sent_of_last, exchange.partition),
            self._settings.patience_s,
        )

    def _on_neighbours_news(self) -> None:
        if self._remote:
            self._settle_soon(self._ack_within_s())

    def _ack_within_s(self) -> float:
        is_full = any(flow.acks.outstanding >= FULL_ACK_TAGS for flow in self._flows.values())
        return FULL_ACK_S if is_full else ACK_S

    def _take(self, flow: FlowPacker, messages: Sequence[EgressMessage]) -> None:
        if self._ended.done() or self._stopping.is_set():
            return  # not acknowledged: they come back
        doubtful = self._metrics.doubtful
        linger_s = self._settings.linger_ms / 1000
        flow.take(messages)
        if self._metrics.doubtful != doubtful:
            self._log_doubtful(flow, self._metrics.doubtful - doubtful)
        flow.seal_after_pause(self._loop.time(), 2 * linger_s)
        self._outbox.pump()
        if flow.has_open_batch and self._linger is None and not flow.is_due:
            self._linger = self._loop.call_later(linger_s, self._seal_lingered)
        if flow.undecided:
            self._wait_for_verdicts()
        elif not flow.compared:
            self._settle_soon()
        elif not flow.has_open_batch:
            if flow.acks.outstanding > PASSED_TAGS:
                self._settle_soon()
            elif self._release is None:
                self._release = self._loop.call_later(PASSED_S, self._release_held)
        self._watch_memory()

    def _wait_for_verdicts(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self._loop.call_later(self._settings.patience_s, self._lose_patience)

    def _lose_patience(self) -> None:
        self._patience = None
        for flow in self._flows.values():
            if flow.undecided:
                doubtful = self._metrics.doubtful
                flow.give_up_waiting()
                if self._metrics.doubtful != doubtful:
                    self._log_doubtful(flow, self._metrics.doubtful - doubtful)
        self._seal_all()
        self._settle_soon()

    def _log_doubtful(self, flow: FlowPacker, count: int) -> None:
        log.warning(
            "%s: egress of %r: %d messages without identity came again and may be in the log"
            "%s: they go out flagged",
            *(self._settings.cluster_id, flow.exchange.partition, count, self._past.losses),
            extra={"event": "messages-doubtful", "site": self._settings.cluster_id},
        )

    def _watch_memory(self) -> None:
        """Stop reading when too much is in hand, and resume at half of the limit."""
        in_hand = sum(flow.in_hand_bytes for flow in self._flows.values())
        egress = self._egress
        assert egress is not None
        if not self._paused and in_hand > self._settings.in_hand_bytes:
            if any(flow.undecided for flow in self._flows.values()):
                # Deciding messages could only come by reading on, without room for them.
                self._lose_patience()
            self._paused = True
            egress.pause()
        elif self._paused and in_hand <= self._settings.in_hand_bytes // 2:
            self._paused = False
            egress.resume()
        self._metrics.in_hand_bytes = in_hand
        self._metrics.in_hand_messages = sum(f.acks.outstanding for f in self._flows.values())

    # --- appending ----------------------------------------------------------------------------

    def _seal_lingered(self) -> None:
        self._linger = None
        for flow in self._flows.values():
            flow.seal_lingered()
        self._outbox.pump()

    def _seal_all(self) -> None:
        for flow in self._flows.values():
            flow.seal()
        self._outbox.pump()

    def _may_not_append(self) -> bool:
        lapsed = self._lease.lapsed(self._loop.time())
        if lapsed:
            self._end(f"the lock may be another's: {lapsed}")
        elif self._parts.log.run is not self._run:
            self._end("the connection to the log is a new one")
        return self._ended.done()

    def _on_confirmed(self, done: Confirmed) -> None:
        if self._ended.done():
            return  # logged and not acknowledged: comes back and is recognised
        crash_points.reach("packer.logged")
        header, parcel = done.header, done.parcel
        self._books.confirmed(header.incarnation_sequence)
        if header.kind is BatchKind.CANARY:
            self._settle_soon()
            return  # no message, and no row
        self._books.packed(PackedBatch(header, done.entries))
        self._metrics.note_batch(done.size, header.byte_count)
        if isinstance(parcel, Parcel):
            delay_ms = self._parts.now_ms() - header.first_published_ms
            self._metrics.note_messages(len(parcel.entries), delay_ms)
            unwanted = parcel.flow.is_unwanted(parcel)
            if unwanted:
                self._metrics.unwanted += len(parcel.entries)
            remote = self._remote.get(parcel.flow.exchange.partition)
            if remote is None:
                parcel.stretch.confirm(self._loop.time())
            else:
                remote.logged(parcel.stretch, None if unwanted else header.name, self._loop.time())
            parcel.flow.in_hand_bytes -= parcel.size
            parcel.flow.confirmed()
        if not self._moving_on:
            self._moving_on = True
            self._loop.call_soon(self._move_on)
        self._settle_soon(self._ack_within_s())

    def _move_on(self) -> None:
        """Append whatever waited for confirmations, once for all in one turn of the loop."""
        self._moving_on = False
        if not self._ended.done():
            self._outbox.pump()
            self._watch_memory()

    # --- acknowledging ------------------------------------------------------------------------

    def _settle_soon(self, within_s: float = 0.0) -> None:
        """Settle within this time, once for everything meanwhile; at once when stopping."""
        if self._stopping.is_set():
            within_s = 0.0
        due = self._loop.time() + within_s
        if self._settling is not None:
            if self._settles_at <= due:
                return
            self._settling.cancel()
        self._settling, self._settles_at = self._loop.call_at(due, self._settle), due

    def _settle(self) -> None:
        self._settling = None
        # Without acknowledging: on a connection lost unnoticed, the record would count an
        # acknowledgement that never arrives.
        if self._ended.done() or self._may_not_append():
            return
        try:
            self._acknowledge()
        except EgressClosed as error:
            self._end(f"egress: {error}")
            return
        except Exception as error:
            # Not written, so not acknowledged; the reason names the error.
            self._end(f"ledger: {error!r}")
            return
        self._outbox.pump()
        self._watch_memory()
        if self._outbox.is_empty:
            self._drained.set()

    def _acknowledge(self) -> None:
        assert self._run is not None
        held = self._acks.acknowledge(self._run, release=self._stopping.is_set())
        if held is not None and self._release is None:
            self._release = self._loop.call_at(held, self._release_held)

    def _release_held(self) -> None:
        self._release = None
        self._settle_soon()

    # --- time passing -------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            egress = self._egress
            assert egress is not None
            now = self._loop.time()
            lapsed = self._lease.lapsed(now)
            if lapsed:
                self._end(f"the lock may be another's: {lapsed}")
                return
            self._lease.tick(now, egress.bytes_heard, listening=not self._paused)
            checked = self._parts.log.checked
            if checked is not None and len(self._answered) == len(self._settings.exchanges):
                self._books.read_from.note(now, checked.offset, self._outbox.next_whole - 1)
            self._report_waiting(now)
            if self._status.state in (PackerState.RUNNING, PackerState.BLOCKED):
                blocked = egress.blocked
                self._status.state = PackerState.BLOCKED if blocked else PackerState.RUNNING
                self._status.reason = "the broker takes no publishes (alarm)" if blocked else ""
            await asyncio.sleep(ticks.about(TICK_S, now))

    def _report_waiting(self, now: float) -> None:
        exchanges = self._status.exchanges
        for name, remote in self._remote.items():
            since = remote.waiting_since
            if since is not None and now >= since + WAITS_S:
                exchanges.setdefault(name, WAITING)
            elif exchanges.get(name) == WAITING:
                del exchanges[name]

    # --- the end ------------------------------------------------------------------------------

    async def _finish(self) -> None:
        """Append and acknowledge everything in hand, within the time for a stop.

        Messages still coming are left unacknowledged, and the consumers are not cancelled: a quorum
        queue at once takes back the messages on their way to a cancelled consumer, and only later,
        with the channel, those that came before. Their order would be lost.
        """
        self._status.state, self._status.reason = PackerState.STOPPED, "stopping"
        try:
            async with asyncio.timeout(self._settings.stop_within_s):
                self._drained.clear()
                self._seal_all()
                self._settle_soon()
                await self._unless_ended(self._drained.wait())
                self._finished = True
        except TimeoutError:
            self._status.reason = "stopped before the log confirmed all; the rest comes again"
        except EgressClosed as error:
            raise IncarnationEnded(f"egress: {error}") from error
