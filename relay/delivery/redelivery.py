"""Further attempts for one flow's deferred messages, beside the flow's own delivery.

For the batches that are due: read from the log -> barrier -> local exchange -> commit, several
batches at a time. Each message has its own number of attempts; after the last one it is a dead
letter. A message that the broker may have already goes out flagged. One that was never sent, a copy
of a deferred message, is first recorded as sent, so that a crash leaves no doubt unflagged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from relay.batches.batch import BatchHead, BatchName, Flow, LoggedBatch
from relay.batches.format import BadBatch
from relay.batches.fragments import FragmentMismatch
from relay.batches.opened_batch import put_together
from relay.delivery.chunk import DeliveryChunk, count_outcomes, delivered_row
from relay.delivery.chunk_builder import CHUNK_BYTES, CHUNK_ENTRIES
from relay.delivery.chunk_claims import ChunkClaims, keep_claim
from relay.delivery.chunk_order import ChunkTurn
from relay.delivery.context import DeliveryContext
from relay.delivery.deferred_batches import COPY_POLL_S, DeferredBatches, WaitingBatch
from relay.delivery.flow_publisher import FlowPublisher
from relay.delivery.part_builder import PartBuilder, ReadBatch
from relay.ledger.rows import Outcome
from relay.log.open_gap import START, OpenGap
from relay.log.reader import ContentGap, LogGap
from relay.state.node_state import Commit
from relay.waiters import Signal, first_of

log = logging.getLogger(__name__)

READ_BYTES = 256 * 1024
TOGETHER_S = 0.1
"""Time by which a batch is tried early with others that are due."""
NEAR_BATCHES = 8
"""Distance in the log up to which two batches are read at once."""
STRETCH_BATCHES = 8
OPENED_BYTES = 4 * 1024 * 1024
"""Bytes of opened batches, of which an attempt may need few, above which no more are read."""
UNREADABLE_POLL_S = 30.0


@dataclass(slots=True)
class _Attempt:
    """Messages of several batches that are tried again at once."""

    chunk: DeliveryChunk = field(default_factory=DeliveryChunk)
    sources: list[tuple[WaitingBatch, int]] = field(default_factory=list)
    """Batch of each message of the chunk, and the message's number there."""
    read_bytes: int = 0
    """Bytes of all batches that were opened for the attempt."""

    def is_full_for(self, stretch: list[WaitingBatch]) -> bool:
        """True if the attempt has to be made before this stretch is read."""
        count = len(self.sources) + sum(len(batch.messages) for batch in stretch)
        return bool(self.sources) and (
            count > CHUNK_ENTRIES
            or self.chunk.byte_count > CHUNK_BYTES
            or self.read_bytes > OPENED_BYTES
        )

    def batches(self) -> list[WaitingBatch]:
        """Return the batches, each once."""
        return list(dict.fromkeys(batch for batch, _ in self.sources))


class Redelivery:
    """One flow's redelivery: `run` until the node stops. `on_gap` gets a gap that keeps a deferred
    message from being read.
    """

    def __init__(
        self,
        flow: Flow,
        context: DeliveryContext,
        deferred: DeferredBatches,
        on_gap: Callable[[LogGap], None],
    ) -> None:
        self._flow = flow
        self._context = context
        self._deferred = deferred
        self._on_gap = on_gap
        self._gap_passed = Signal()
        self._parts = PartBuilder(flow, context)
        self._claims = ChunkClaims(context.barrier, _not_again)
        self._publisher = FlowPublisher(flow, context, _ignore, _is_noted, _ignore, _not_again)

    async def run(self) -> None:
        """Try messages again as each is due, until the node stops."""
        context = self._context
        while not context.stopping.is_set():
            self._deferred.changed.clear()
            waiting = self._deferred.waiting()
            if not waiting:
                await context.unless_stopping(self._deferred.changed)
                continue
            wait_s = min(batch.due for batch in waiting) - _now()
            if wait_s > 0:
                await self._sleep(wait_s)
            elif context.held:
                await context.unless_stopping(context.released)
            else:
                await self._try(waiting)

    def pass_gap(self, gap: OpenGap) -> None:
        """Resume behind an accepted gap."""
        self._deferred.pass_gap(gap)
        self._gap_passed.set()

    async def _sleep(self, wait_s: float) -> None:
        """Wait until the time has passed, a batch has come, or the node stops."""
        either = Signal()
        handle = asyncio.get_running_loop().call_later(wait_s, either.set)
        try:
            await first_of(either, self._deferred.changed, self._context.stopping)
        finally:
            handle.cancel()

    # -- one attempt -------------------------------------------------------------------------

    async def _try(self, waiting: list[WaitingBatch]) -> None:
        now = _now()
        attempt = _Attempt()
        for stretch in _stretches([one for one in waiting if one.due <= now + TOGETHER_S]):
            if attempt.is_full_for(stretch):
                break
            try:
                read = await self._read(stretch)
            except LogGap as gap:
                self._gap_passed.clear()
                self._on_gap(gap)
                await self._context.unless_stopping(self._gap_passed)
                return
            if self._context.stopping.is_set():
                return
            for batch, whole in read:
                self._add(attempt, batch, whole)
        if attempt.sources:
            await self._deliver(attempt)
            self._save(attempt)

    def _add(self, attempt: _Attempt, batch: WaitingBatch, read: ReadBatch) -> None:
        chunk = attempt.chunk
        chunk.begun_ms = chunk.begun_ms or self._context.now_ms()
        attempt.read_bytes += read.header.byte_count
        for number, message in sorted(batch.messages.items()):
            n = self._parts.append(chunk, read, number, number + 1).start
            attempt.sources.append((batch, number))
            chunk.byte_count += message.size
            if message.was_sent:
                chunk.flagged.add(n)
                chunk.sent.add(n)
                chunk.reasons.pop(n, None)  # an age that no longer matters: in doubt anyway
            if message.refusals:
                chunk.attempts[n] = message.refusals
                chunk.reasons[n] = message.reason

    async def _deliver(self, attempt: _Attempt) -> None:
        """Give up, judge and publish once. The caller saves whatever has come of the attempt."""
        chunk = attempt.chunk
        exchange = self._context.mesh.exchanges.get(self._flow.exchange)
        chunk.expire(chunk.pending(), self._context.now_ms())
        if exchange is None or not await self._bury(chunk):
            return
        ready = self._judge(attempt)
        if not ready:
            return
        await self._note_sent(attempt, ready)
        turn = ChunkTurn(chunk, None)
        while ready and await self._publisher.attempt(turn, ready, exchange.delivers_to):
            # Once more for what the broker never takes, which then goes to the quarantine.
            refused = chunk.pending_of(ready)
            ready = [n for n in refused if n in chunk.reasons and n not in chunk.attempts]

    async def _bury(self, chunk: DeliveryChunk) -> bool:
        """Give up what was refused too often; return False if the node stops before."""
        most = self._deferred.rule.max_attempts
        for number in chunk.pending():
            if chunk.attempts.get(number, 0) >= most and not await self._publisher.bury(
                chunk, number
            ):
                return False
        return True

    def _judge(self, attempt: _Attempt) -> list[int]:
        """Claim all messages that may be published now, and return their numbers.

        Without an await, from the end of kept claims to the new ones: in between a copy by another
        way would be new.
        """
        chunk, barrier = attempt.chunk, self._context.barrier
        for n in chunk.pending():
            batch, number = attempt.sources[n]
            message = batch.messages[number]
            if message.claim is not None:
                barrier.release(message.claim)
                message.claim = None
        being_delivered: set[int] = set()
        while pending := [n for n in chunk.pending() if n not in being_delivered]:
            ready = self._claims.judge(chunk, pending)
            judgement = chunk.judgement
            if judgement is not None and judgement.blocked_on is not None:
                being_delivered.add(pending[len(judgement) - 1])
                self._claims.release(chunk)  # to judge what stands behind as well
            elif ready is not None:
                return ready
        return []

    async def _note_sent(self, attempt: _Attempt, ready: list[int]) -> None:
        """Record, durably, that messages which were never sent are about to be."""
        fresh = {}
        for n in ready:
            batch, number = attempt.sources[n]
            if not batch.messages[number].was_sent:
                batch.messages[number].was_sent = True
                fresh[batch.name] = batch
        if fresh:
            writing = Commit()
            for batch in fresh.values():
                self._deferred.write(batch, writing)
            await self._context.state.write_synced(writing)

    def _save(self, attempt: _Attempt) -> None:
        """Commit whatever is settled, and plan the next attempt for the rest."""
        context, chunk = self._context, attempt.chunk
        writing, now_ms = Commit(), context.now_ms()
        self._claims.end(chunk, writing.changes)
        for n, (batch, number) in enumerate(attempt.sources):
            message = batch.messages[number]
            if chunk.outcomes[n] is not Outcome.PENDING:
                if message.claim is not None:  # given up before it was judged again
                    context.barrier.release(message.claim)
                part = chunk.part_of(n)
                writing.row(delivered_row(chunk, part, n, n + 1, now_ms))
                delivered = count_outcomes(context.counters, chunk, n, n + 1)
                if delivered:
                    context.note_delays(self._flow, part.header, chunk.begun_ms, delivered)
                self._deferred.settled(batch, number)
                continue
            message.refusals = chunk.attempts.get(n, 0)
            message.was_sent = message.was_sent or n in chunk.sent
            message.reason = chunk.reasons.get(n, message.reason)
            if message.claim is None:
                message.claim = keep_claim(context.barrier, chunk, n)
        delays: dict[int, float] = {}
        for batch in attempt.batches():
            # One delay for as many refusals: what was read at once is read at once again.
            refusals = max((one.refusals for one in batch.messages.values()), default=0)
            if refusals not in delays:
                delays[refusals] = self._delay_s(refusals)
            batch.due = _now() + delays[refusals]
            self._deferred.write(batch, writing)
        context.save_position(writing)
        context.state.write(writing)

    def _delay_s(self, refusals: int) -> float:
        return self._deferred.delay_s(refusals) if refusals else COPY_POLL_S

    # -- reading -----------------------------------------------------------------------------

    async def _read(self, stretch: list[WaitingBatch]) -> list[tuple[WaitingBatch, ReadBatch]]:
        """Read batches from the log again, but for any that the log does not have (any more) or
        that cannot be opened. Raises LogGap.
        """
        tail = self._context.log.tail
        found = {
            name: logged
            for batch in stretch
            for name in batch.names
            if (logged := tail.batch(name)) is not None
        }
        lacking = [batch for batch in stretch if not found.keys() >= set(batch.names)]
        if lacking:
            await self._find(lacking, found)
        read = []
        for batch in stretch:
            pieces = [found[name] for name in batch.names if name in found]
            if len(pieces) < len(batch.names):
                continue
            for piece in pieces:
                if isinstance(piece.data, BatchHead):
                    raise ContentGap(piece, batch.before or START)
            try:
                opened = put_together(pieces)
            except (BadBatch, FragmentMismatch) as error:
                self._leave_unreadable(batch, error)
                continue
            whole = ReadBatch(pieces[-1].header, batch.names, batch.point, batch.before, opened)
            read.append((batch, whole))
        return read

    def _leave_unreadable(self, batch: WaitingBatch, error: Exception) -> None:
        log.error(
            "deferred messages of %s cannot be read again: %s",
            batch.name,
            error,
            extra={"event": "deferred-unreadable", "batch": str(batch.name)},
        )
        for message in batch.messages.values():
            message.reason = f"its batch cannot be read again: {error}"
        batch.due = _now() + UNREADABLE_POLL_S

    async def _find(self, stretch: list[WaitingBatch], found: dict[BatchName, LoggedBatch]) -> None:
        """Add the stretch's batches to `found`, from the place before its first on. Some are
        missing if the node stops, or the log ends.
        """
        context, first = self._context, stretch[0]
        wanted = {name for batch in stretch for name in batch.names} - found.keys()
        reader = context.log.reader(first.before, name=f"deferred {first.name}")
        try:
            while wanted:
                batches = await context.next_batches(reader, READ_BYTES)
                if batches is None:
                    return
                for logged in batches:
                    if logged.place.name in wanted:
                        wanted.discard(logged.place.name)
                        found[logged.place.name] = logged
                if wanted and (news := reader.news()) is not None:
                    news.cancel()
                    # Of the first alone, as the others may stand before it: they are read from
                    # their own places next.
                    if not wanted.isdisjoint(first.names):
                        self._deferred.missed(first)
                    return
        finally:
            await reader.close()


def _stretches(batches: list[WaitingBatch]) -> Iterator[list[WaitingBatch]]:
    """Yield the batches in stretches of the log that are read at once: a reader costs the broker
    more than a few batches of others in between.
    """
    stretch: list[WaitingBatch] = []
    size = 0
    for batch in sorted(batches, key=lambda one: one.point.number):
        more = sum(message.size for message in batch.messages.values())
        if stretch and (
            batch.point.number - stretch[-1].point.number > NEAR_BATCHES
            or len(stretch) == STRETCH_BATCHES
            or size + more > CHUNK_BYTES
        ):
            yield stretch
            stretch, size = [], 0
        stretch.append(batch)
        size += more
    if stretch:
        yield stretch


def _not_again(chunk: DeliveryChunk, number: int) -> bool:
    """Leave a refused message pending: the attempt's end plans the next."""
    return False


async def _is_noted(_: DeliveryChunk) -> None:
    """Announce nothing: the record of deferred messages says what was sent."""


def _ignore(_: object) -> None:
    """Take no note: a redelivery does not make its flow stand."""


def _now() -> float:
    """Time by the clock that measures sleeps."""
    return asyncio.get_running_loop().time()
