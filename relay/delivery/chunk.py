"""A chunk: up to 256 messages that a flow has announced, their outcomes, and the ledger rows of
these. Pure.

Columns, not objects: barrier keys, content hashes and outcomes lie beside each other under
the same number, since every message that a site gets passes here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from dedup.barrier import Judgement
from relay.batches.batch import BatchHeader, BatchName, Entry, Place, make_entry
from relay.batches.opened_batch import OpenedBatch
from relay.bulk_amqp.content_header import check
from relay.bulk_amqp.errors import MalformedProperties
from relay.delivery.context import DeliveryCounters
from relay.delivery.local_exchange import Answer, Outgoing
from relay.delivery.properties import DeliveryStamp, remaining_ms
from relay.delivery.settlement import Point
from relay.delivery.stamped_messages import StampedMessages
from relay.ledger.batch_rows import batch_row
from relay.ledger.rows import (
    CONFLICT,
    CONTENT_BYTES,
    OFFSET_BYTES,
    REDELIVERED,
    REPAIRED,
    Event,
    LedgerRow,
    Outcome,
    Stage,
    pack_contents,
)
from relay.ledger_proof import Sought

UNDELIVERED = frozenset({Outcome.EXPIRED, Outcome.DEAD, Outcome.QUARANTINED})
"""Outcomes after which the same message, arriving by another way, would be delivered."""

_UNSENDABLE = "the broker does not take it: properties beyond a frame, or too large a body"
_ANSWERED = {Answer.CONFIRMED: Outcome.DELIVERED, Answer.UNROUTED: Outcome.UNROUTED}


@dataclass(slots=True)
class Part:
    """Messages of one batch in a chunk: the batch's entries from `first` on, numbered from `start`.

    `names` are settled with the last message: one name, or all fragments of a big message. `point`
    is where the batch (or last fragment) stands. A void batch is a part without messages.
    """

    header: BatchHeader
    names: tuple[BatchName, ...]
    point: Point
    before: Place | None
    """Place before the batch, or before the first fragment; None: the log's start."""
    stamp: DeliveryStamp
    opened: OpenedBatch
    start: int
    first: int
    count: int = 0
    recorded: int = 0
    """Number of messages, counted from the first, that are settled and in the ledger."""
    void: bool = False
    is_passed: bool = False
    """True if the flow has passed the batch before, and only deferred messages are left of it."""
    behind_pieces: bool = False
    """True if a big message before was incomplete: the position must not pass its pieces."""
    reason: str = ""
    repaired_of: str = ""
    """Cluster ID of the messages' origin, where a repair brings them."""
    done: bool = False
    """True once the whole part is settled and recorded."""

    @property
    def end(self) -> int:
        return self.start + self.count

    def number_in_batch(self, number: int) -> int:
        """Number in the batch of the chunk's message `number`."""
        return self.first + number - self.start

    @property
    def place(self) -> Place:
        place = self.point.place
        assert place is not None, "a part stands somewhere in the log"
        return place


@dataclass(slots=True, eq=False)
class DeliveryChunk:
    """Messages that one intent covers and one commit settles."""

    parts: list[Part] = field(default_factory=list)
    byte_count: int = 0
    """Bytes of keys, properties and bodies."""
    begun_ms: int = 0
    """Time (ms since 1970) at which the chunk got its first batch."""
    names: set[BatchName] = field(default_factory=set)
    """Names of all batches of the chunk."""
    keys: list[bytes] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)
    places: list[bytes] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    conflicts: set[int] = field(default_factory=set)
    flagged: set[int] = field(default_factory=set)
    """Numbers of messages whose earlier publish may have succeeded."""
    attempts: dict[int, int] = field(default_factory=dict)
    refused_at: dict[int, float] = field(default_factory=dict)
    """Time of each message's last failed attempt, by the event loop's clock."""
    reasons: dict[int, str] = field(default_factory=dict)
    raw: dict[int, bytes] = field(default_factory=dict)
    """Whole batches that cannot be opened, each in the place of one message."""
    is_announced: bool = False
    """True once the flow's intent has the messages."""
    sent: set[int] = field(default_factory=set)
    """Numbers of messages that were handed to the broker at least once."""
    is_repair: bool = False
    """True if a repair brings these messages: judged by other rules, never with others."""
    proven: dict[bytes, bool] = field(default_factory=dict)
    """True, by barrier key, if the site's ledger has a delivery of the repaired message."""
    forgotten: dict[bytes, bool] = field(default_factory=dict)
    """Like `proven`, for messages that the barrier may have forgotten."""
    not_proven: dict[int, str] = field(default_factory=dict)
    """Reason, by number, why the ledger could not answer: such messages are not repeated."""

    judgement: Judgement | None = None
    judged: dict[int, int] = field(default_factory=dict)
    """Number -> index in the judgement, for messages with open claims."""
    kept: dict[int, Judgement] = field(default_factory=dict)
    """Claims, by number, of deferred messages that are not recorded yet."""

    def __len__(self) -> int:
        return len(self.outcomes)

    @property
    def is_plain(self) -> bool:
        """True if every message is to be published, and claimed as new if it has an identity: then
        nothing has to be known of the messages before to publish these.
        """
        return (
            not self.is_repair
            and not self.reasons
            and not self.sent
            and (not self.keys or (self.judgement is not None and self.judgement.whole))
            and self.outcomes.count(Outcome.PENDING) == len(self.outcomes)
        )

    def entry(self, number: int) -> Entry:
        """Return message `number`."""
        part = self.part_of(number)
        return make_entry(part.opened.entry(part.number_in_batch(number)))

    def part_of(self, number: int) -> Part:
        """Return the part in which message `number` stands."""
        if len(self.parts) == 1:
            return self.parts[0]
        at = bisect_right(self.parts, number, key=lambda part: part.start)
        while self.parts[at - 1].count == 0:
            at -= 1
        return self.parts[at - 1]

    def sought(self, number: int, *, by_origin: bool) -> Sought:
        """Describe the message as the site's ledger would record its delivery."""
        part = self.part_of(number)
        return Sought(
            part.header.name.series.exchange,
            part.repaired_of if by_origin else "",
            self.entry(number).identity,
            self.hashes[number][:CONTENT_BYTES],
        )

    def pending(self, begin: int = 0, end: int | None = None) -> list[int]:
        """Numbers of the messages in the range that are still to be published, in order."""
        stop = len(self.outcomes) if end is None else end
        if self.outcomes.count(Outcome.PENDING) == len(self.outcomes):
            return list(range(begin, stop))
        return [i for i in range(begin, stop) if self.outcomes[i] is Outcome.PENDING]

    def pending_of(self, numbers: Sequence[int]) -> list[int]:
        """Return the numbers, of these, of messages that are still to be published."""
        return [n for n in numbers if self.outcomes[n] is Outcome.PENDING]

    def first_pending(self, begin: int, end: int) -> int:
        """Number of the first message still to be published, `end` if there is none."""
        try:
            return self.outcomes.index(Outcome.PENDING, begin, end)
        except ValueError:
            return end

    def deferred(self, begin: int, end: int) -> list[int]:
        """Numbers of the deferred messages in the range, in order."""
        if not self.outcomes.count(Outcome.DEFERRED):
            return []
        return [n for n in range(begin, end) if self.outcomes[n] is Outcome.DEFERRED]

    def first_unsent(self, begin: int, end: int) -> int:
        """Lowest number from which on, up to `end`, no message was ever handed to the broker."""
        while end > begin and end - 1 not in self.sent:
            end -= 1
        return end

    def expire(self, numbers: Collection[int], now_ms: int) -> bool:
        """Settle those of the messages whose deadline has passed; return True if there are any."""
        expired = {
            part.start + number - part.first
            for part in self.parts
            for number in part.opened.expired(part.first, part.first + part.count, now_ms)
        }
        for number in expired.intersection(numbers):
            self.outcomes[number] = Outcome.EXPIRED
        return bool(expired)

    def delivered(self, numbers: Sequence[int]) -> None:
        """Settle messages that the broker has confirmed."""
        if len(numbers) == len(self):
            self.outcomes[:] = [Outcome.DELIVERED] * len(self)  # others hold the list
            return
        for number in numbers:
            self.outcomes[number] = Outcome.DELIVERED

    def answered(
        self, numbers: Sequence[int], answers: Sequence[Answer], now: float, *, connected: bool
    ) -> None:
        """Take in the broker's answers to these messages. Unless `connected`, a message without an
        answer was refused by nobody: the next attempt sends it with the others. `now` is the event
        loop's time.
        """
        for number, answer in zip(numbers, answers, strict=True):
            outcome = _ANSWERED.get(answer)
            if outcome is not None:
                self.outcomes[number] = outcome
                continue
            if answer is Answer.UNSENDABLE:
                self.attempts.pop(number, None)
                self.reasons[number] = _UNSENDABLE
                continue
            self.flagged.add(number)
            if answer is Answer.REFUSED:
                self.reasons[number] = "a queue refused it (full, reject-publish)"
            elif connected:
                self.reasons[number] = "no confirm: a queue without a leader?"
            else:
                continue
            self.attempts[number] = self.attempts.get(number, 0) + 1
            self.refused_at[number] = now

    def outgoing(self, numbers: list[int], now_ms: int) -> tuple[list[int], Sequence[Outgoing]]:
        """Return the numbers of the messages to be published, and the messages in their published
        form.

        A message with unreadable properties is left out and noted in `reasons`, and so is
        quarantined.
        """
        stamped = self._stamped(numbers, now_ms)
        if stamped is not None:
            return numbers, stamped
        sent: list[int] = []
        messages: list[Outgoing] = []
        flagged = self.flagged
        part = self.parts[0]
        begin, end, apply = part.start, part.end, part.stamp.apply
        for number in numbers:
            entry = self.entry(number)
            if not begin <= number < end:
                part = self.part_of(number)
                begin, end, apply = part.start, part.end, part.stamp.apply
            try:
                if number in self.sent:
                    # Perhaps these properties ended the connection: brokers read them whole, we
                    # read only the changed fields.
                    check(entry.properties)
                properties = apply(
                    entry.properties,
                    flagged=number in flagged,
                    left_ms=remaining_ms(entry.deadline_ms, now_ms) if entry.deadline_ms else None,
                )
            except MalformedProperties as error:
                self.attempts.pop(number, None)
                self.reasons[number] = f"properties cannot be read: {error}"
                continue
            sent.append(number)
            messages.append(Outgoing(entry.routing_key, properties, entry.body))
        return sent, messages

    def _stamped(self, numbers: list[int], now_ms: int) -> StampedMessages | None:
        """Stamp a whole run of messages by the native core; None where a message of the chunk may
        have been sent before, or some other has to go through the twin.
        """
        if self.sent or self.flagged or not numbers:
            return None
        begin, end = numbers[0], numbers[-1] + 1
        if end - begin != len(numbers):
            return None
        runs = []
        for part in self.parts:
            first, last = max(begin, part.start), min(end, part.end)
            if first >= last:
                continue
            if part.stamp.native is None:
                return None
            run = part.opened.stamped(
                part.number_in_batch(first), part.number_in_batch(last), part.stamp.native, now_ms
            )
            if run is None:
                return None
            runs.append(run)
        return StampedMessages(runs)


def delivered_row(chunk: DeliveryChunk, part: Part, begin: int, end: int, now_ms: int) -> LedgerRow:
    """Build the ledger row of messages `begin` to `end` (half open), all in this part."""
    first, last = part.number_in_batch(begin), part.number_in_batch(end)
    outcomes = bytearray([chunk.outcomes[begin]]) * (end - begin)
    if chunk.outcomes.count(chunk.outcomes[begin]) < len(chunk):
        outcomes = bytearray(chunk.outcomes[begin:end])
    if part.repaired_of:
        outcomes = bytearray(outcome | REPAIRED for outcome in outcomes)
    for number in chunk.conflicts:
        if begin <= number < end:
            outcomes[number - begin] |= CONFLICT
    for number in chunk.flagged:
        if begin <= number < end:
            outcomes[number - begin] |= REDELIVERED
    return batch_row(
        part.header,
        Stage.DELIVERED,
        now_ms,
        reason="; ".join(sorted({chunk.reasons[n] for n in chunk.reasons if begin <= n < end})),
        position=part.repaired_of,
        first_entry=first,
        count=end - begin,
        identities=part.opened.identities(first, last),
        contents=pack_contents(chunk.hashes[begin:end]),
        outcomes=bytes(outcomes),
        published=part.opened.published_offsets(first, last, part.header.first_published_ms),
        delivered=bytes(OFFSET_BYTES * (end - begin)),
    )


def void_row(part: Part, now_ms: int) -> LedgerRow:
    """Build the ledger row of a batch without messages for this site, with `part.reason`."""
    return batch_row(
        part.header,
        Stage.DELIVERED,
        now_ms,
        event=Event.QUARANTINED if part.reason else Event.VOID,
        position=str(part.header.name),
        reason=part.reason,
    )


def count_outcomes(counters: DeliveryCounters, chunk: DeliveryChunk, begin: int, end: int) -> int:
    """Add the outcomes of these messages to the counters; return how many were delivered."""
    outcomes = chunk.outcomes[begin:end]
    delivered = outcomes.count(Outcome.DELIVERED)
    counters.delivered += delivered
    counters.repaired += delivered if chunk.is_repair else 0
    if delivered < len(outcomes):
        counters.duplicates += outcomes.count(Outcome.DUPLICATE)
        counters.unrouted += outcomes.count(Outcome.UNROUTED)
        counters.expired += outcomes.count(Outcome.EXPIRED)
        counters.dead_lettered += outcomes.count(Outcome.DEAD)
        counters.quarantined += outcomes.count(Outcome.QUARANTINED)
        counters.own += outcomes.count(Outcome.OWN)
    counters.identity_conflicts += sum(begin <= n < end for n in chunk.conflicts)
    counters.redelivered += sum(
        begin <= n < end and chunk.outcomes[n] is Outcome.DELIVERED for n in chunk.flagged
    )
    return delivered
