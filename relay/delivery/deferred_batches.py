"""Batches of which messages are deferred: refused by the site's broker, tried again while their
flow goes on (`order: best_effort`).

A deferred message waits by its number in its batch, without its body, which is read again from the
log. Its claim at the barrier is kept, so that no copy by another way is delivered meanwhile; such
copies are deferred as well, unsent. A batch is settled once none of its messages is deferred, and
until then the deliverer's position stays before. `redelivery` makes the further attempts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from dedup.barrier import Judgement, Verdict
from federation.mesh import OrderRule, RetryRule
from relay.batches.batch import BatchName, Flow, Place
from relay.delivery.chunk import DeliveryChunk, Part
from relay.delivery.chunk_claims import keep_claim
from relay.delivery.context import DeliveryContext
from relay.delivery.doubts import Doubts
from relay.delivery.part_builder import PartBuilder, ReadBatch
from relay.delivery.settlement import Point
from relay.ledger.rows import Outcome
from relay.log.open_gap import OpenGap
from relay.retry import retry_delay_s
from relay.state.deferred_entries import DeferredEntry
from relay.state.node_state import Commit
from relay.waiters import Signal

log = logging.getLogger(__name__)

DEFERRED_AT_MOST = 1000
"""Most messages of a flow that are deferred: each has its record, and its reading of the log."""
DEFERRED_BYTES = 16 * 1024 * 1024
"""Most bytes of a flow's deferred messages, all of which are read and sent again."""
COPY_POLL_S = 1.0
"""Interval at which a copy of a message that is being delivered is judged anew."""


@dataclass(slots=True)
class DeferredMessage:
    """Message that waits for another attempt."""

    size: int
    refusals: int = 0
    was_sent: bool = False
    reason: str = ""
    claim: Judgement | None = None
    """Claim at the barrier, where this process has made one."""


@dataclass(slots=True, eq=False)
class WaitingBatch:
    """Batch, or big message, with deferred messages by number."""

    names: tuple[BatchName, ...]
    point: Point
    before: Place | None
    """Place before the batch, or before its first piece: where its reading begins."""
    messages: dict[int, DeferredMessage] = field(default_factory=dict)
    is_passed: bool = False
    """True once the flow has settled all other messages of the batch."""
    due: float = 0.0
    """Time of the next attempt, by the event loop's clock."""
    is_missing: bool = False
    """True if the log lacks the batch, which then waits to be met again."""
    may_be_gone: bool = False
    """True once a person has accepted that the log lost what stood at or before the batch."""

    @property
    def name(self) -> BatchName:
        return self.names[-1]

    def entries(self) -> list[DeferredEntry]:
        """Return the batch's record for the node's state."""
        return [
            DeferredEntry(number, message.refusals, message.was_sent)
            for number, message in sorted(self.messages.items())
        ]


class DeferredBatches:
    """Batches of one flow with deferred messages. `doubts`: the flow's claims for a former process,
    which are given up for those made here.
    """

    def __init__(self, flow: Flow, context: DeliveryContext, doubts: Doubts) -> None:
        self.messages = 0
        """Number of deferred messages, with those of chunks that are not saved yet."""
        self.byte_count = 0
        self.changed = Signal()
        """Signal, set when a batch has come, or another time is due."""
        self._flow = flow
        self._context = context
        self._doubts = doubts
        self._parts = PartBuilder(flow, context)
        self._batches: dict[BatchName, WaitingBatch] = {}
        """Batches by each of their names; of one flow, so mostly in the order of the log."""
        self._unmet = context.deferred.setdefault(flow, {})
        """Records of a former process whose batches were not met yet."""

    def __contains__(self, name: BatchName) -> bool:
        return name in self._batches

    def waiting(self) -> list[WaitingBatch]:
        """Return all batches with messages to be tried again."""
        return [
            batch
            for name, batch in self._batches.items()
            if name == batch.name and batch.messages and not batch.is_missing
        ]

    @property
    def reason(self) -> str:
        """Reason why the first deferred message waits, or empty."""
        for batch in self._batches.values():
            for message in batch.messages.values():
                return message.reason or "a copy of the message is being delivered"
        return ""

    # -- by the flow -------------------------------------------------------------------------

    def take_in(self, chunk: DeliveryChunk, number: int) -> bool:
        """Defer a pending message of the chunk, to be recorded as the chunk is saved. False if the
        flow has to wait for the message instead: by the exchange's order, or for want of room.
        """
        exchange = self._context.mesh.exchanges.get(self._flow.exchange)
        if exchange is None or exchange.order is not OrderRule.BEST_EFFORT:
            return False
        if chunk.is_repair or number in chunk.raw:
            return False
        size = _size(chunk, number)
        if self.messages >= DEFERRED_AT_MOST or self.byte_count + size > DEFERRED_BYTES:
            return False
        self.messages += 1
        self.byte_count += size
        chunk.outcomes[number] = Outcome.DEFERRED
        # At once: what is judged next must not take the open claim for its own.
        if (claim := keep_claim(self._context.barrier, chunk, number)) is not None:
            chunk.kept[number] = claim
        return True

    def record(
        self, chunk: DeliveryChunk, part: Part, numbers: Iterable[int], writing: Commit
    ) -> None:
        """Record deferred messages of a part, in the commit by which the flow passes them."""
        batch = self._batches.get(part.names[-1])
        if batch is None:
            batch = WaitingBatch(part.names, part.point, part.before)
            self._add(batch)
        now = asyncio.get_running_loop().time()
        due = now + COPY_POLL_S
        for number in numbers:
            refusals = chunk.attempts.get(number, 0)
            batch.messages[part.number_in_batch(number)] = DeferredMessage(
                _size(chunk, number),
                refusals,
                number in chunk.sent,
                chunk.reasons.get(number, ""),
                chunk.kept.pop(number, None),
            )
            if refusals:
                due = min(due, now + self.delay_s(refusals))
            self._context.counters.deferred += 1
        batch.due = min(batch.due, due) if batch.due else due
        writing.deferred(self._flow, batch.name, batch.entries())
        self.changed.set()

    def delay_s(self, refusals: int) -> float:
        """Return the seconds from a refusal to the next attempt; 0 if the message is given up."""
        return retry_delay_s(self.rule, max(1, refusals), self._context.random) or 0.0

    @property
    def rule(self) -> RetryRule:
        """Rule of the exchange for attempts."""
        exchange = self._context.mesh.exchanges.get(self._flow.exchange)
        return exchange.retry if exchange else RetryRule()

    def passed(self, name: BatchName) -> bool:
        """Note that the flow has passed the batch of this (last) name. True if messages of it are
        deferred, which settle the batch later.
        """
        batch = self._batches.get(name)
        if batch is None:
            return False
        batch.is_passed = True
        if not batch.messages:
            self.drop(batch)
        return bool(batch.messages)

    # -- as batches are met ------------------------------------------------------------------

    def take_unmet(self, name: BatchName) -> tuple[DeferredEntry, ...]:
        """Take the record that a former process has left of this batch; empty if there is none."""
        return self._unmet.pop(name, ()) if self._unmet else ()

    def met(self, read: ReadBatch, entries: Iterable[DeferredEntry], *, is_passed: bool) -> None:
        """Take up deferred messages of a former process, whose batch was met."""
        batch = WaitingBatch(read.names, read.point, read.before, is_passed=is_passed)
        count = len(read.opened)
        for number, refusals, was_sent in entries:
            if number < count:
                _, key, properties, body, *_ = read.opened.entry(number)
                size = len(key) + len(properties) + len(body)
                reason = "refused before the node started" if refusals else ""
                claim = self._claim(read, number)
                batch.messages[number] = DeferredMessage(size, refusals, was_sent, reason, claim)
                self.messages += 1
                self.byte_count += size
        self._add(batch)

    def _claim(self, read: ReadBatch, number: int) -> Judgement | None:
        """Claim a message, before a copy behind is judged. None if another delivery has a copy in
        hand, or a copy is delivered.
        """
        barrier, one = self._context.barrier, DeliveryChunk()
        self._parts.append(one, read, number, number + 1)
        self._doubts.give_up(one)
        judgement = barrier.judge(self, one.keys, one.hashes, one.places)
        return barrier.keep(judgement, 0) if judgement.verdicts[0] <= Verdict.CONFLICT else None

    def met_again(self, name: BatchName, before: Place | None) -> None:
        """Note where a batch stands that was read again: the log may have lost it in between."""
        batch = self._batches[name]
        if name == batch.names[0]:
            batch.before = before
            batch.is_missing = False
            self.changed.set()

    def forget_unmet(self, name: BatchName) -> bool:
        """Forget the record of a batch whose messages count no more, or cannot be read. False if
        there is none.
        """
        if not self.take_unmet(name):
            return False
        self._doubts.end(name)
        writing = Commit()
        writing.deferred(self._flow, name, ())
        self._context.state.write(writing)
        return True

    # -- by the redelivery -------------------------------------------------------------------

    def settled(self, batch: WaitingBatch, number: int) -> None:
        """Note that a message is settled."""
        message = batch.messages.pop(number)
        self.messages -= 1
        self.byte_count -= message.size

    def write(self, batch: WaitingBatch, writing: Commit) -> None:
        """Add the batch's present record to the commit; settle the batch if nothing is left."""
        writing.deferred(self._flow, batch.name, batch.entries())
        if batch.messages or not batch.is_passed:
            return
        settled = self._context.settled
        for name in batch.names:
            settled.add(name)
        writing.settled(settled, [batch.name.series])
        self.drop(batch)

    def missed(self, batch: WaitingBatch) -> None:
        """Note that the log does not have the batch."""
        if not batch.may_be_gone:
            batch.is_missing = True
            return
        log.error(
            "deferred messages of %s went with the log's accepted gap",
            batch.name,
            extra={"event": "deferred-gone", "batch": str(batch.name)},
        )
        self.drop(batch)
        writing = Commit()
        writing.deferred(self._flow, batch.name, ())
        self._context.save_position(writing)
        self._context.state.write(writing)

    def pass_gap(self, gap: OpenGap) -> None:
        """Read batches that stood behind a lost place from the accepted gap's end; drop a batch of
        which the content is gone.
        """
        place = gap.end
        if gap.lost:
            if (lost := self._batches.get(place.name)) is not None:
                lost.may_be_gone = True
                self.missed(lost)
            return
        for batch in self.waiting():
            if batch.before is None or batch.before.offset < place.offset:
                batch.before, batch.may_be_gone = place, True

    def drop(self, batch: WaitingBatch) -> None:
        """Drop a batch that is settled or gone, with whatever claims are left."""
        for number, message in list(batch.messages.items()):
            if message.claim is not None:
                self._context.barrier.release(message.claim)
            self.settled(batch, number)
        for name in batch.names:
            del self._batches[name]
        self._context.settlement.end_deferral(self._flow, batch.name)

    def _add(self, batch: WaitingBatch) -> None:
        for name in batch.names:
            self._batches[name] = batch
        self._context.settlement.defer(self._flow, batch.name, batch.before)
        self.changed.set()


def _size(chunk: DeliveryChunk, number: int) -> int:
    entry = chunk.entry(number)
    return len(entry.routing_key) + len(entry.properties) + len(entry.body)
