"""Own log -> barrier -> local exchange: reads the site's log and hands each flow its batches.

One reader meets every batch once, in log order; flows deliver theirs beside each other. The reader
passes by a flow that stands (see `flow_queue`). One connection to the site's broker holds the lock;
when the connection goes, the flows wait for the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from relay.batches.batch import Flow, LoggedBatch
from relay.delivery.context import DeliveryContext
from relay.delivery.flow_delivery import FlowDelivery
from relay.delivery.flow_queue import Job
from relay.delivery.local_exchange import DelivererLockHeld, LocalClosed, LocalExchange
from relay.log.open_gap import just_before
from relay.log.site_log import SiteLogError
from relay.retry import reconnect_delay_s
from relay.state.node_state import Commit
from relay.waiters import Signal, first_of

log = logging.getLogger(__name__)

READ_BYTES = 1024 * 1024
ROOM_WAIT_S = 0.2
"""Time that the reader waits for a busy flow before the flow has to miss batches: reading the log
twice costs more than a short wait, and a flow that stands must not hold up others for longer."""
UNDECIDED_POLL_S = 0.02


class DeliveryConnection:
    """The deliverer's present connection to the site's broker, opened again whenever lost."""

    def __init__(
        self,
        open_exchange: Callable[[], Awaitable[LocalExchange]],
        stopping: Signal,
        random: Callable[[], float],
        settle_s: float,
        *,
        was_answered: bool = False,
    ) -> None:
        """Hold a new lock for `settle_s` before the first publish: by then the broker has handled
        everything that the former holder sent. Not the first lock, if all of that `was_answered`.
        """
        self._open_exchange = open_exchange
        self._stopping = stopping
        self._random = random
        self._settle_s = settle_s
        self._first_settle_s = 0.0 if was_answered else settle_s
        self.ended_answered = False
        """True if the broker had answered all that was published when the last connection was
        closed here.
        """
        self._present: LocalExchange | None = None
        self._changed = Signal()
        self.reason = "connecting"
        """Reason why there is no connection; empty while connected."""

    @property
    def blocked(self) -> bool:
        return self._present is not None and self._present.blocked

    def open_exchange(self) -> LocalExchange | None:
        """Return the connection if open at present."""
        present = self._present
        return None if present is None or present.closed.done() else present

    async def exchange(self) -> LocalExchange | None:
        """Return the open connection after waiting for one, or None when the node stops first."""
        while self._present is None or self._present.closed.done():
            if self._stopping.is_set():
                return None
            self._changed.clear()
            await first_of(self._changed, self._stopping)
        return self._present

    async def keep(self) -> None:
        """Connect, and again whenever the connection goes, until cancelled."""
        failures, settle_s = 0, self._first_settle_s
        while True:
            try:
                opened = await self._open_exchange()
            except (LocalClosed, DelivererLockHeld) as error:
                self._note_away(str(error))
                await asyncio.sleep(reconnect_delay_s(failures, self._random))
                failures += 1
                continue
            try:
                await asyncio.wait({opened.closed}, timeout=settle_s)
                settle_s = self._settle_s
                if not opened.closed.done():
                    failures = 0
                    self._present, self.reason = opened, ""
                    self._changed.set()
                    await asyncio.wait({opened.closed})
                self._present = None
                self._note_away(opened.closed.result())
            finally:
                self.ended_answered = not opened.closed.done() and opened.is_answered
                await opened.close()
            await asyncio.sleep(reconnect_delay_s(failures, self._random))
            failures += 1

    def _note_away(self, reason: str) -> None:
        if reason != self.reason:
            log.warning("the site's broker is away: %s", reason, extra={"event": "broker-away"})
        self.reason = reason


class Deliverer:
    """One site's deliverer. `run` until `context.stopping`, then finish all in flight."""

    def __init__(self, context: DeliveryContext, connection: DeliveryConnection) -> None:
        self._context = context
        self._connection = connection
        self._flows: dict[Flow, FlowDelivery] = {}
        self._own: dict[str, list[FlowDelivery]] = {}
        """Flows of the site's own messages, by exchange: one for each lane."""
        self._workers: dict[Flow, asyncio.Task[None]] = {}
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def standing(self) -> dict[str, str]:
        """Flows that stand at present, and why."""
        return {
            f"{flow.origin}/{flow.partition}": delivery.waiting
            for flow, delivery in self._flows.items()
            if delivery.waiting
        }

    @property
    def deferring(self) -> dict[str, str]:
        """Flows with deferred messages, and how many of these wait for what."""
        return {
            f"{flow.origin}/{flow.partition}": f"{deferred.messages} messages: {deferred.reason}"
            for flow, delivery in self._flows.items()
            if (deferred := delivery.deferred).messages
        }

    @property
    def deferred(self) -> int:
        """Number of deferred messages that wait for another attempt."""
        return sum(delivery.deferred.messages for delivery in self._flows.values())

    @property
    def blocked(self) -> bool:
        return self._connection.blocked

    @property
    def away(self) -> str:
        """Reason why the site's broker cannot be published to; empty if reachable."""
        return self._connection.reason

    def go_on(self, gap: str) -> None:
        """Resume the flow that stands at the gap of this key: a person has accepted the gap."""
        for delivery in self._flows.values():
            if delivery.gap == gap:
                delivery.go_on()

    @property
    def ended_answered(self) -> bool:
        """True if nothing that was published can arrive after the end."""
        return self._connection.ended_answered

    async def keep_connected(self) -> None:
        """Keep the connection to the site's broker, with the deliverer's lock, until cancelled."""
        await self._connection.keep()

    async def run(self) -> None:
        """Read, and deliver over the connection, until the node stops. Raises the errors of flows
        and of the log.
        """
        reading = asyncio.create_task(self._read(), name="deliverer: reader")
        try:
            await asyncio.wait({reading, self._failed}, return_when=asyncio.FIRST_COMPLETED)
            for ended in (reading, self._failed):
                if ended.done():
                    ended.result()
            await asyncio.gather(*self._workers.values())
            if self._failed.done():
                self._failed.result()  # by a chunk that was under way as the node stopped
        finally:
            if not self._failed.cancel():
                self._failed.exception()  # another end came first; nobody else retrieves this error
            tasks = [reading, *self._workers.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> None:
        context = self._context
        if context.settlement.reader.place is None:
            await context.or_stop(self._begin())
        await self._claim_doubts()
        reader = context.log.reader(context.settlement.reader.place, name="deliverer")
        reader.on_sent_back = partial(context.settlement.sent_back, is_after=context.log.is_after)
        try:
            while (batches := await context.next_batches(reader, READ_BYTES)) is not None:
                for batch in batches:
                    while context.voids.is_undecided(batch.header):
                        # This site's packer is about to state its predecessor's end.
                        if not await context.sleep(UNDECIDED_POLL_S):
                            return
                    if delivery := self._delivery_of(batch):
                        await delivery.queue.room(ROOM_WAIT_S)
                    if reader.place is None or reader.place.name != batches[-1].place.name:
                        break  # sent back meanwhile: these come again, after the new ones
                    self._meet(batch, delivery)
        finally:
            await reader.close()

    async def _claim_doubts(self) -> None:
        """Claim what a former process may have published, before any flow judges a message."""
        in_doubt = [
            self._start(flow).doubts.claim(state)
            for flow, state in list(self._context.flows.items())
            if (state.intent or self._context.deferred.get(flow))
            and flow.exchange in self._context.mesh.exchanges
        ]
        await asyncio.gather(*in_doubt)

    async def _begin(self) -> None:
        """Store the log's beginning as first position: whatever retention eats before anything is
        settled is a gap as well.
        """
        context, first = self._context, None
        while not context.log.ended:
            with contextlib.suppress(SiteLogError):  # `scans` waits for the next connection
                first = await (await context.log.scans()).first()
                break
        if first:
            place = just_before(first)
            context.settlement.begins(place)
            beginning = Commit()
            context.save_position(beginning)
            await context.state.write_synced(beginning)

    def _delivery_of(self, batch: LoggedBatch) -> FlowDelivery | None:
        """Return the flow to which the batch belongs, or None if this site has nothing to do."""
        context = self._context
        if not context.wants(batch) or batch.place.name in context.settled:
            return None
        flow = batch.header.name.series.flow
        return self._flows.get(flow) or self._start(flow)

    def _meet(self, batch: LoggedBatch, delivery: FlowDelivery | None) -> None:
        """Hand the log's next batch to its flow, if any. Without an await, so that the reader is
        not sent back in between.
        """
        context = self._context
        if context.voids.learn(batch.header):
            origin, ends = batch.header.name.series.origin, batch.header.predecessors
            news = Commit()
            news.void(origin, context.voids.ends(origin, ends))
            context.state.write(news)
        settlement, whole = context.settlement, context.counted(batch.header)
        if delivery is None:
            settlement.met(batch.place, whole)
            return
        before = settlement.reader.place
        settlement.outstanding(delivery.flow, settlement.reader)
        if not delivery.is_own:
            for own in self._own.get(delivery.flow.exchange, ()):
                own.enter_gathered()  # what stands before in the log is known first
        delivery.queue.offer(Job(settlement.met(batch.place, whole), batch, before))

    def _start(self, flow: Flow) -> FlowDelivery:
        delivery = self._flows[flow] = FlowDelivery(flow, self._context, self._on_error)
        if delivery.is_own:
            self._own.setdefault(flow.exchange, []).append(delivery)
        worker = asyncio.create_task(delivery.run(), name=f"deliver {flow.exchange}@{flow.origin}")
        worker.add_done_callback(self._ended)
        self._workers[flow] = worker
        return delivery

    def _ended(self, worker: asyncio.Task[None]) -> None:
        error = None if worker.cancelled() else worker.exception()
        if error is not None:
            self._on_error(error)

    def _on_error(self, error: BaseException) -> None:
        """End the deliverer with a flow's error."""
        if not self._failed.done():
            self._failed.set_exception(error)
