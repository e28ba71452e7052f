"""Delivery of one flow: log -> barrier -> local exchange, in order, chunk by chunk.

For each chunk: claim -> *intent* (durable: "publishing these") -> publish -> confirms -> *commit*,
which is one atomic write of identities, ledger rows, settled names and the flow's next place.

`flow_publisher` hands a chunk's messages to the broker, and deals with refusals. `chunk_order` lets
the next chunk go to the broker while the former is being confirmed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from relay import crash_points
from relay.batches.batch import Flow, Place
from relay.delivery.chunk import (
    DeliveryChunk,
    Part,
    count_outcomes,
    delivered_row,
    void_row,
)
from relay.delivery.chunk_builder import CHUNK_BYTES, ChunkBuilder
from relay.delivery.chunk_claims import ChunkClaims
from relay.delivery.chunk_order import ChunkOrder, ChunkTurn
from relay.delivery.context import DeliveryContext
from relay.delivery.deferred_batches import COPY_POLL_S, DeferredBatches
from relay.delivery.doubts import Doubts
from relay.delivery.flow_publisher import FlowPublisher
from relay.delivery.flow_queue import FlowQueue
from relay.delivery.local_exchange import Answer
from relay.delivery.redelivery import Redelivery
from relay.delivery.repair_proof import prove
from relay.ledger.rows import Outcome, Stage
from relay.log.open_gap import START, OpenGap, gap_reason, gap_row
from relay.log.reader import ContentGap, LogGap
from relay.state.flow_state import Announced, FlowState, announce, commit, withdraw
from relay.state.node_state import Commit
from relay.tracing.batch_trace import BatchTrace
from relay.waiters import Signal

log = logging.getLogger(__name__)


class FlowDelivery:
    """One flow's worker: `run` delivers the queue's batches until the node stops."""

    def __init__(
        self, flow: Flow, context: DeliveryContext, on_error: Callable[[Exception], None]
    ) -> None:
        """`on_error` gets what a chunk's delivery raises: the node has to end."""
        self.flow = flow
        self.queue = FlowQueue(flow, context)
        self.waiting = ""
        """Reason why the flow stands, or empty."""
        self.gap = ""
        """Key of the gap at which the flow stands."""
        self._gap_accepted = Signal()
        self._context = context
        self._state = context.flows.get(flow, FlowState())
        self.is_own = flow.origin == context.settings.cluster_id
        """True for messages of the site's own, which only a repair delivers."""
        self.doubts = Doubts(flow, context)
        """Claims of what a former process may have published."""
        self.deferred = DeferredBatches(flow, context, self.doubts)
        """Batches of which messages are tried again beside later ones."""
        self._builder = ChunkBuilder(flow, self._state, context, self.deferred)
        self._claims = ChunkClaims(context.barrier, self.deferred.take_in)
        self._publisher = FlowPublisher(
            flow, context, self._stand, self._announce, self._save, self.deferred.take_in
        )
        self._redelivery = Redelivery(flow, context, self.deferred, self.queue.met_gap)
        self._on_error = on_error
        self._order = ChunkOrder(
            self._deliver_in_turn, self._rest, on_error, context.settings.announced_at_most
        )
        self._is_busy = False
        """True while jobs are at hand that are in no chunk yet."""

    async def run(self) -> None:
        """Deliver until the node stops, and return with everything settled so far committed."""
        again = asyncio.create_task(self._redeliver(), name="redelivery")
        try:
            await self._run_past_gaps()
            await again
        finally:
            again.cancel()
            await asyncio.gather(again, return_exceptions=True)

    async def _redeliver(self) -> None:
        try:
            await self._redelivery.run()
        except Exception as error:
            self._on_error(error)

    async def _run_past_gaps(self) -> None:
        while True:
            try:
                await self._run()
            except LogGap as gap:
                # The flow stood for longer than the log keeps. Others go on; the lost batches were
                # never settled, so the deliverer's position stays before them, and the next start
                # asks a person, unless somebody has answered by then.
                if not await self._stop_at(gap):
                    return
            else:
                return

    async def _stop_at(self, gap: LogGap) -> bool:
        """Stand at the gap until a person accepts; False if the node stops first."""
        context = self._context
        gap = gap.since(context.settlement.settled_to(self.flow) or START)
        self._stand(gap_reason(gap))
        log.error(
            "flow %s@%s stops: %s",
            self.flow.exchange,
            self.flow.origin,
            self.waiting,
            extra={"event": "delivery-stopped-at-gap"},
        )
        now_ms, settled = context.now_ms(), context.settled
        writing = Commit()
        writing.row(gap_row(gap, Stage.DELIVERED, now_ms, flow=self.flow))
        context.state.write(writing)
        found = OpenGap.of(
            gap,
            Stage.DELIVERED,
            now_ms,
            context.log.names_lately(),
            lambda name: name.series.flow == self.flow and name not in settled,
            flow=self.flow,
        )
        self.gap, self._gap_accepted = found.key, Signal()
        if context.gaps is not None:
            context.gaps.found(found)
        if not await context.unless_stopping(self._gap_accepted):
            return False
        self.gap = ""
        self._pass_gap(found)
        return True

    def go_on(self) -> None:
        """Note that a person has accepted the gap at which the flow stands."""
        self._gap_accepted.set()

    def _pass_gap(self, gap: OpenGap) -> None:
        """Resume behind the gap with the log's remainder, as after a start there."""
        context = self._context
        accepted = None if context.gaps is None else context.gaps.accepted(gap.key)
        if context.gaps is None or accepted is None:
            return  # taken back meanwhile: the flow meets the gap again
        writing = Commit()
        if gap.lost:
            name = gap.end.name
            context.settled.add(name)
            writing.settled(context.settled, [name.series])
        else:
            context.settlement.gone(self.flow, gap.end)
        self.queue.begin_again()
        self._builder = ChunkBuilder(self.flow, self._state, context, self.deferred)
        self._redelivery.pass_gap(gap)
        writing.row(gap.accepted_row(accepted.by, accepted.at, context.now_ms()))
        context.save_position(writing)
        context.state.write(writing)
        context.gaps.passed(accepted)
        self._stand("")

    async def _run(self) -> None:
        try:
            await self._take_jobs()
            await self._order.settled()
        except LogGap:
            await self._order.settled()
            raise
        finally:
            await self._order.end()  # by then none is under way, or an error ends the node

    async def _take_jobs(self) -> None:
        builder = self._builder
        async for jobs in self.queue.jobs():
            self._is_busy = True
            for job in jobs:
                is_lost = builder.lacks(job.batch)
                if (is_lost or builder.is_full_for(job.batch)) and not await self._deliver(
                    builder.take()
                ):
                    return
                if is_lost:
                    raise ContentGap(job.batch, job.before or START)
                builder.add(job)
            if not await self._deliver(builder.take()):
                return
            self._is_busy = False
            self._rest()
            await self._order.over_or(self.queue.has_plenty)

    def enter_gathered(self) -> None:
        """Enter the own messages that wait for more, before another flow can judge what may repeat
        them: at once, as the other's worker may be about to run.
        """
        if self._is_busy or not self._order.is_empty:
            self.queue.hurry()
            return
        builder, jobs = self._builder, self.queue.take_gathered()
        for job in jobs:
            if builder.lacks(job.batch):
                self.queue.begin_again()  # for the worker to stop there
                break
            if builder.is_full_for(job.batch):
                self._enter(builder.take())
            builder.add(job)
        if jobs:
            if (chunk := builder.take()).parts:
                self._enter(chunk)
            self._rest()

    def _rest(self) -> None:
        """Note that the flow has nothing to do, unless it has."""
        if not (
            self._is_busy
            or self._order.is_broken
            or not self._order.is_empty
            or not self.queue.is_empty
            or self._builder.holds_fragments
        ):
            self._context.settlement.idle(self.flow)

    def _stand(self, why: str) -> None:
        self.waiting = self.queue.standing = why

    # -- one chunk ---------------------------------------------------------------------------

    async def _deliver(self, chunk: DeliveryChunk) -> bool:
        """Begin to deliver the chunk; return once the next may come, False if the node stops."""
        if not chunk.parts:
            return True
        if self.is_own and not chunk.is_repair:
            await self._order.settled()  # a repair before
            self._enter(chunk)
            return True
        goes_on = await self._order.deliver(chunk)
        if chunk.byte_count > CHUNK_BYTES:
            # Beside a big message no other is put together in memory.
            await self._order.settled()
            goes_on = not self._order.is_broken
        return goes_on

    async def _deliver_in_turn(self, turn: ChunkTurn) -> bool:
        """Deliver the whole chunk; return False if the node stops before the end."""
        chunk = turn.chunk
        try:
            answers = None if turn.has_come else await self._go_ahead(turn)
            if answers is not None:
                self._publisher.answered_ahead(turn, await answers)
                if not await turn.come_or_trouble():
                    self._save(chunk, in_turn=False)  # other flows may wait for these messages
            if await turn.come() and await self._deliver_alone(turn):
                return True
            self._abandon(turn)
            return False
        finally:
            self._builder.over(chunk)

    async def _go_ahead(self, turn: ChunkTurn) -> Coroutine[Any, Any, list[Answer]] | None:
        """Claim, announce and hand over the whole chunk before its turn. Return what waits for the
        answers; None, with everything taken back, if the chunk has to wait for its turn.
        """
        chunk = turn.chunk
        if turn.channel_before is None or self._context.held or chunk.is_repair or chunk.sent:
            return None
        pending = chunk.pending()
        if not pending or chunk.expire(pending, self._context.now_ms()):
            return None
        if self._publisher.has_large(chunk):
            return None
        self._claims.judge(chunk, pending)
        if not chunk.is_plain:
            self._take_back(chunk)
            return None
        await self._announce(chunk)
        answers = None if self._context.held else self._publisher.publish_ahead(turn)
        if answers is None:
            self._take_back(chunk)
        return answers

    def _take_back(self, chunk: DeliveryChunk) -> None:
        """End the chunk's claims, for which other flows may wait, and withdraw what was announced:
        nothing of it was sent.
        """
        self._claims.release(chunk)
        chunk.conflicts.clear()
        chunk.is_announced = False
        self._withdraw_unsent(chunk)

    async def _deliver_alone(self, turn: ChunkTurn) -> bool:
        """Deliver what is left of the chunk, whose turn has come; False if the node stops first."""
        chunk = turn.chunk
        exchange = await self._exchange(chunk)
        if exchange is None:
            return False
        while pending := chunk.pending():
            # Before anything is announced: unsent messages are not in doubt.
            if self._context.held:
                if not await self._publisher.released():
                    return False
                continue
            chunk.expire(pending, self._context.now_ms())
            if chunk.is_repair:
                await prove(chunk, self._context, by_origin=self._builder.is_by_origin)
            pending = chunk.pending()
            # What went ahead and was refused is claimed still.
            ready = pending if chunk.judged and pending else self._judge(chunk, pending)
            if ready is None:
                continue  # only just became known: a claim ended, or all are duplicates
            if not ready:
                if not await self._wait_for_claim(chunk):
                    return False
                continue
            if not await self._publisher.publish(turn, ready, exchange):
                return False
            crash_points.reach("delivery.confirmed")
            self._save(chunk)
            crash_points.reach("delivery.committed")
        self._save(chunk)
        return True

    def _judge(self, chunk: DeliveryChunk, pending: list[int]) -> list[int] | None:
        """Judge as `ChunkClaims.judge` does, with the claims of doubts given up in between."""
        if not self.doubts:
            return self._claims.judge(chunk, pending)
        self.doubts.give_up(chunk)
        ready = self._claims.judge(chunk, pending)
        if chunk.judgement is not None:
            self.doubts.claim_again(chunk, pending[len(chunk.judgement) :])
        return ready

    def _enter(self, chunk: DeliveryChunk) -> None:
        """Enter the site's own messages into the barrier: the site's queues have them already."""
        begin = 0
        while begin < len(chunk):
            begin += self._claims.enter(chunk, begin)
            # Another flow may have claimed the last: then that flow enters the message.
            if begin < len(chunk):  # the last claims end in the chunk's own commit
                writing = Commit()
                self._claims.end(chunk, writing.changes)
                self._context.state.write(writing)
        self._save(chunk)
        self._builder.over(chunk)

    async def _exchange(self, chunk: DeliveryChunk) -> str | None:
        """Wait for the exchange in the mesh and return its name; None when the node stops."""
        while (exchange := self._context.mesh.exchanges.get(self.flow.exchange)) is None:
            if not chunk.pending():
                return ""
            self._stand(f"the mesh file has no exchange {self.flow.exchange!r}: `isthmus apply`")
            if not await self._context.sleep(self._context.settings.parked_poll_s):
                return None
            self._stand("")
        return exchange.delivers_to

    async def _wait_for_claim(self, chunk: DeliveryChunk) -> bool:
        """Wait for the outcome of the first pending message, which another flow has claimed, or of
        which a copy is deferred.
        """
        ended = Signal()
        self._save(chunk)
        assert chunk.judgement is not None
        if chunk.judgement.blocked_on is None:
            self._stand("a copy of the next message waits for another attempt")
            return await self._context.sleep(COPY_POLL_S)
        self._context.barrier.when_released(chunk.judgement, ended.set)
        self._stand("the same message is being delivered from another site")
        try:
            return await self._context.unless_stopping(ended)
        finally:
            self._stand("")

    async def _announce(self, chunk: DeliveryChunk) -> None:
        """Store durably which messages a crash may leave published, once for the whole chunk."""
        if chunk.is_announced:
            return
        chunk.is_announced = True
        crash_points.reach("delivery.judged")
        parts = [
            Announced(part.names[-1], part.first + first - part.start, part.first + part.count)
            for part in chunk.parts
            if (first := chunk.first_pending(part.start, part.end)) < part.end
        ]
        writing = Commit()
        self._move(announce(self._state, parts), writing)
        await self._context.state.write_synced(writing)
        crash_points.reach("delivery.announced")

    def _trace(self, trace: BatchTrace, chunk: DeliveryChunk, part: Part) -> None:
        outcomes = chunk.outcomes[part.start : part.end]
        if Outcome.OWN not in outcomes:  # nothing is delivered where it was published
            delivered = outcomes.count(Outcome.DELIVERED)
            trace.delivered(part.header, part.opened, chunk.begun_ms, delivered)

    # -- writing down ------------------------------------------------------------------------

    def _save(self, chunk: DeliveryChunk, *, in_turn: bool = True) -> None:
        """Commit whatever is settled: the first messages with their rows, others' identities early;
        identities alone if not `in_turn`, since messages before are not settled.

        Without an await, from the claims' end to the write: in between nobody knows the messages.
        """
        context = self._context
        writing = Commit()
        self._claims.end(chunk, writing.changes)
        moved: list[Announced] = []
        reached: Place | None = None
        entry = 0
        for part in chunk.parts if in_turn else ():
            begin = part.start + part.recorded
            end = chunk.first_pending(begin, part.end)
            name = part.names[-1]
            if part.void:
                writing.row(void_row(part, context.now_ms()))
            elif end > begin:
                first = part.first + part.recorded
                moved.append(Announced(name, first, first + end - begin))
                self._record(chunk, part, begin, end, writing)
                part.recorded = end - part.start
            elif part.count:
                break
            if not part.is_passed:
                reached, entry = part.place, part.first + part.recorded
            if end < part.end:
                break
            part.done = True
            self.doubts.end(name)
            if context.trace is not None and part.count:
                self._trace(context.trace, chunk, part)
            if not self.deferred.passed(name):
                for settled in part.names:
                    context.settled.add(settled)
                writing.settled(context.settled, [name.series])
            if not part.behind_pieces:
                # A batch among pieces (a void one) would take the position past them, and after
                # a kill their message would never be complete.
                context.settlement.settled(self.flow, part.point)
        while chunk.parts and chunk.parts[0].done:
            chunk.parts.pop(0)
        if reached is not None:
            self._move(commit(self._state, moved, reached, entry), writing)
        if writing.changes:
            context.save_position(writing)
            context.state.write(writing)

    def _record(
        self, chunk: DeliveryChunk, part: Part, begin: int, end: int, writing: Commit
    ) -> None:
        """Add the ledger rows of settled messages, and the records of deferred ones between."""
        context = self._context
        deferred = chunk.deferred(begin, end)
        first = begin
        for last in (*deferred, end):
            if last > first:
                writing.row(delivered_row(chunk, part, first, last, context.now_ms()))
                delivered = count_outcomes(context.counters, chunk, first, last)
                if delivered and not chunk.is_repair:
                    context.note_delays(self.flow, part.header, chunk.begun_ms, delivered)
            first = last + 1
        if deferred:
            self.deferred.record(chunk, part, deferred, writing)

    def _move(self, state: FlowState, writing: Commit) -> None:
        """Replace the flow's state, and add the new state to a commit."""
        self._state = self._context.flows[self.flow] = state
        self.doubts.keep(state)
        writing.flow(self.flow, state)

    def _abandon(self, turn: ChunkTurn) -> None:
        """Release all claims as the node stops, and withdraw what was never sent."""
        chunk = turn.chunk
        self._save(chunk, in_turn=turn.has_come)
        self._claims.release(chunk)
        self._withdraw_unsent(chunk)

    def _withdraw_unsent(self, chunk: DeliveryChunk) -> None:
        """Withdraw what was announced and is not in doubt: messages never sent, and batches whose
        identities are all committed though their turn never came.
        """
        unsent = [
            Announced(part.names[-1], part.first + first - part.start, part.first + part.count)
            for part in chunk.parts
            if (first := self._first_not_in_doubt(chunk, part)) < part.end
        ]
        state = withdraw(self._state, unsent)
        if state != self._state:
            writing = Commit()
            self._move(state, writing)
            self._context.state.write(writing)

    @staticmethod
    def _first_not_in_doubt(chunk: DeliveryChunk, part: Part) -> int:
        if (
            chunk.keys
            and chunk.first_pending(part.start, part.end) == part.end
            and not chunk.deferred(part.start, part.end)
        ):
            return part.start
        return chunk.first_unsent(part.start, part.end)
