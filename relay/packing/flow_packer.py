"""Grouping of one exchange's egress messages into parcels for the log. No I/O: takes messages, and
hands over parcels to append and stretches to acknowledge.

After a packer's start the first messages are compared with the flow's end in the log (`comeback`);
from the first fresh message on they are simply packed, but for any that egress has handed out
before all the same.

Where sites narrow the exchange, each message has its own destination set, and each set an open
batch; otherwise messages for alternating sites would fill batches of a single message. All open
batches are sealed together, as soon as one is full or has lingered. No site is in two of them: a
message for some, not all, sites of an open batch has all of those sealed first. So each site gets
the flow's messages in egress's order, though the log, over all sites, need not have them so.
Messages without an identity of their own do keep their order in the log: open batches for other
sites are sealed first. The comparison needs their order, having nothing else by which to tell like
messages apart.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from federation.destinations import DestinationIndex
from relay import core
from relay.batches.batch import EVERY_SITE, Entry
from relay.batches.fragments import FRAGMENT_ABOVE
from relay.batches.packed_entries import (
    STOP_DONE,
    STOP_FULL,
    STOP_ODD,
    OpenBatch,
    PackedEntries,
    first_published_ms,
    new_open_batch,
)
from relay.packing.comeback.returned_prefix import ReturnedMessages, ReturnVerdict, message_digest
from relay.packing.egress import EgressMessage
from relay.packing.egress_acks import EgressAcks, TagStretch
from relay.packing.intake import Cleaned, Intake
from relay.packing.packer_metrics import PackerMetrics
from relay.packing.packer_settings import PackedExchange, PackerSettings

_ENTRY_BYTES = 41
"""Size of an entry in a batch beside its key, properties and body."""


@dataclass(slots=True)
class Parcel:
    """Unit for the log: the entries of one batch, or one big message."""

    flow: FlowPacker
    entries: PackedEntries
    size: int
    destinations: tuple[str, ...]
    stretch: TagStretch
    big: bool = False

    @property
    def exchange(self) -> str:
        return self.flow.exchange.name

    @property
    def lane(self) -> int:
        return self.flow.exchange.lane


@dataclass(slots=True)
class _Waiting:
    """Message without a verdict; `cleaned` None: ours coming round, to be passed over."""

    tag: int
    routing_key: bytes
    cleaned: Cleaned | None
    body: bytes


class _OpenBatch:
    """Open batch for one destination set."""

    __slots__ = ("destinations", "entries", "size")

    def __init__(self, destinations: tuple[str, ...], entries: list[Entry] | OpenBatch) -> None:
        self.destinations = destinations
        self.entries = entries
        self.size = 0


class FlowPacker:
    """Packer of one consumption of one egress queue by one incarnation.

    `sealed` is called with every parcel, in order. `now_ms` returns the time in ms since 1970.
    """

    def __init__(
        self,
        exchange: PackedExchange,
        settings: PackerSettings,
        intake: Intake,
        returned: ReturnedMessages,
        sealed: Callable[[Parcel], None],
        now_ms: Callable[[], int],
        metrics: PackerMetrics,
    ) -> None:
        self.exchange = exchange
        self.acks = EgressAcks()
        self.recognised = 0
        """Number of messages that came back and that the log has, or may have."""
        self.in_hand_bytes = 0
        """Bytes taken off egress and not yet confirmed by the log."""
        self.in_flight = 0
        """Number of sealed parcels that the log has not confirmed."""
        self.is_due = False
        """True if the open batches have lingered, and go when those in flight are confirmed."""
        self._taken_at = -math.inf
        self._intake = intake
        self._returned = returned
        self._fresh_came = False
        self._waiting: deque[_Waiting] = deque()
        self._index = None if exchange.addressing is None else DestinationIndex(exchange.addressing)
        self._open: dict[tuple[str, ...], _OpenBatch] = {}
        """Open batches by destination set, in the order of their first messages."""
        self._latest = self._new_batch(exchange.destinations)
        """Batch of the last message: nearly always that of the next message too."""
        self._sites: set[str] = set()
        """All sites in the destination sets of open batches."""
        self._most_entries = settings.batch_entries
        self._most_bytes = settings.batch_bytes
        self._sealed = sealed
        self._now_ms = now_ms
        self._metrics = metrics

    def _new_batch(self, destinations: tuple[str, ...]) -> _OpenBatch:
        # One by one, entries cost less in a list: only whole runs are worth columns.
        return _OpenBatch(destinations, new_open_batch() if self._index is None else [])

    @property
    def has_open_batch(self) -> bool:
        return bool(self._open)

    @property
    def oldest_published_ms(self) -> int | None:
        """Publish time (ms) of the oldest message in the open batches, or None if there is none. A
        message whose return is not yet judged does not count.
        """
        for batch in self._open.values():
            return first_published_ms(batch.entries)
        return None

    @property
    def undecided(self) -> int:
        """Number of messages that wait for the verdict on their return."""
        return len(self._waiting)

    @property
    def compared(self) -> bool:
        """True once all messages that return in order have come."""
        return self._fresh_came or self._returned.over

    def is_unwanted(self, parcel: Parcel) -> bool:
        """True if no other site takes the parcel's messages."""
        return self._index is not None and parcel.destinations == self._index.nobody

    def take(self, messages: Sequence[EgressMessage]) -> None:
        """Take the next messages, in the order of their tags."""
        if not self._fresh_came:
            messages = self._compare(messages)
        now = self._now_ms()
        if not self._packs_natively(messages):
            self._take_each(messages, now)
            return
        at = 0
        while (at := self._take_run(messages, at, now)) < len(messages):
            self._take_each(messages[at : at + 1], now)
            at += 1

    def _packs_natively(self, messages: Sequence[EgressMessage]) -> bool:
        """True if the native core may pack common ones among these messages."""
        return (
            core.native is not None
            and isinstance(messages, core.native.DeliveryBlock)
            and self._index is None
            and not self._returned.notes_fresh
        )

    def _take_run(self, messages: Sequence[EgressMessage], at: int, now: int) -> int:
        """Take messages from number `at` on up to the first that the twin has to take, and return
        the number of that one.
        """
        intake, why, own_in_all = self._intake, STOP_FULL, 0
        while why not in (STOP_DONE, STOP_ODD):
            batch = self._latest
            entries = cast(OpenBatch, batch.entries)
            at, why, passed, waiting, used, own = entries.take(
                messages,
                at,
                intake.rules,
                now,
                intake.random_left(),
                self._most_entries,
                self._most_bytes,
                FRAGMENT_ABOVE,
            )
            intake.random_used(used)
            own_in_all += own
            if passed:
                self.acks.passed(passed)
            if waiting:
                self._open[batch.destinations] = batch
                self.acks.packed(waiting)
                self.in_hand_bytes += entries.size - batch.size
                batch.size = entries.size
            if why == STOP_FULL:
                self.seal()
        self._metrics.own += own_in_all
        return at

    def _take_each(self, messages: Sequence[EgressMessage], now: int) -> None:
        clean = self._intake.clean
        entry_of = self._intake.entry
        pack = self._pack if self._index is None else self._pack_addressed
        own = passed = 0
        notes_fresh = self._returned.notes_fresh
        for tag, redelivered, _, key, properties, body in messages:
            cleaned = clean(properties)
            if cleaned is None:
                own += 1
                passed = tag
                continue
            entry, is_own = entry_of(key, cleaned, body, now)
            if redelivered:
                digest = message_digest(key, cleaned.properties, body)
                verdict = self._returned.late(digest, cleaned.properties)
                kept = self._kept(verdict, entry, is_own)
                if kept is None:
                    passed = tag
                    continue
                entry = kept
            elif notes_fresh:
                self._returned.note(message_digest(key, cleaned.properties, body))
            if passed:
                self.acks.passed(passed)
                passed = 0
            pack(tag, entry, is_own)
        if passed:
            self.acks.passed(passed)
        self._metrics.own += own
        if self._intake.malformed:
            self._metrics.malformed += self._intake.malformed
            self._intake.malformed = 0

    def seal_after_pause(self, now: float, pause_s: float) -> None:
        """Seal the messages just taken if nothing came for so long before, and nothing is in
        flight: at this pace nothing would join them.
        """
        before, self._taken_at = self._taken_at, now
        if now - before > pause_s and not self.in_flight:
            self.seal()

    def seal_lingered(self) -> None:
        """Seal the open batches, which have waited long enough, now or right behind those in
        flight.

        Under load the log's own pace gathers messages: a stream confirms in order, so an earlier
        append would hardly be there earlier, and a batch costs every stage of the mesh the same
        whatever its size.
        """
        self.is_due = bool(self._open and self.in_flight)
        if not self.is_due:
            self.seal()

    def confirmed(self) -> None:
        """Note that the log has confirmed a parcel in flight."""
        self.in_flight -= 1
        if self.is_due and not self.in_flight:
            self.seal()

    def seal(self) -> None:
        """Close all open batches, if any."""
        self.is_due = False
        if not self._open:
            return
        batches, self._open = self._open, {}
        self._latest = self._new_batch(self._latest.destinations)
        self._sites.clear()
        stretch = self.acks.sealed(len(batches))
        for batch in batches.values():
            self._hand_over(batch.entries, batch.size, batch.destinations, stretch)

    def give_up_waiting(self) -> None:
        """Decide about the waiting messages with the present knowledge."""
        if not self._fresh_came:
            self._apply(self._returned.give_up_waiting())

    def _pack_addressed(self, tag: int, entry: Entry, own: bool) -> None:
        """Pack as `_pack` does, where the destinations follow from the key."""
        assert self._index is not None
        destinations = self._index.of(entry.routing_key)
        if destinations is not self._latest.destinations:
            batch = self._open.get(destinations)
            if batch is None:
                if self._shares_a_site(destinations):
                    self.seal()
                batch = self._new_batch(destinations)
            self._latest = batch
        if not own and self._open and (len(self._open) > 1 or not self._latest.entries):
            self.seal()
        self._pack(tag, entry, own)

    def _shares_a_site(self, destinations: tuple[str, ...]) -> bool:
        """True if a site is in this set and in the different set of an open batch."""
        if not self._open:
            return False
        if destinations == EVERY_SITE or EVERY_SITE in self._open:
            return True
        return not self._sites.isdisjoint(destinations)

    def _pack(self, tag: int, entry: Entry, own: bool) -> None:
        """Add the entry to its open batch. `own`: the entry has an identity of its own."""
        size = _ENTRY_BYTES + len(entry.routing_key) + len(entry.properties) + len(entry.body)
        if self._latest.size + size > self._most_bytes or (size > FRAGMENT_ABOVE and self._open):
            self.seal()
        self.acks.packed(tag)
        self.in_hand_bytes += size
        batch = self._latest
        if size > FRAGMENT_ABOVE:
            self._hand_over([entry], size, batch.destinations, self.acks.sealed(), big=True)
            return
        if not batch.entries:
            self._open[batch.destinations] = batch
            self._sites.update(batch.destinations)
        batch.entries.append(entry)
        batch.size += size
        if len(batch.entries) >= self._most_entries:
            self.seal()

    def _hand_over(
        self,
        entries: PackedEntries,
        size: int,
        destinations: tuple[str, ...],
        stretch: TagStretch,
        *,
        big: bool = False,
    ) -> None:
        self.in_flight += 1
        self._sealed(Parcel(self, entries, size, destinations, stretch, big))

    # -- messages that come again --------------------------------------------------------------

    def _compare(self, messages: Sequence[EgressMessage]) -> Sequence[EgressMessage]:
        """Take messages handed out before, up to the first fresh message, and return the rest."""
        returned = self._returned
        digests, properties_of = [], []
        fresh: Sequence[EgressMessage] = ()
        for number, (tag, redelivered, _, key, properties, body) in enumerate(messages):
            if not redelivered:
                fresh = messages[number:] if number else messages
                break
            cleaned = self._intake.clean(properties)
            self._waiting.append(_Waiting(tag, key, cleaned, body))
            self.in_hand_bytes += len(body)
            if cleaned is not None:
                digests.append(message_digest(key, cleaned.properties, body))
                properties_of.append(cleaned.properties)
        self._apply(returned.take(digests, properties_of) if digests else [])
        if fresh:
            self._apply(returned.fresh())
            self._fresh_came = True
        return fresh

    def _apply(self, verdicts: Sequence[ReturnVerdict]) -> None:
        now = self._now_ms()
        verdict_of = iter(verdicts)
        waiting = self._waiting
        pack = self._pack if self._index is None else self._pack_addressed
        while waiting:
            message = waiting[0]
            if message.cleaned is None:
                self._pass_over(message)
                self._metrics.own += 1
                continue
            verdict = next(verdict_of, None)
            if verdict is None:
                return
            entry, own = self._intake.entry(message.routing_key, message.cleaned, message.body, now)
            kept = self._kept(verdict, entry, own)
            if kept is None:
                self._pass_over(message)
                continue
            self._take_back(message)
            pack(message.tag, kept, own)

    def _kept(self, verdict: ReturnVerdict, entry: Entry, own: bool) -> Entry | None:
        """Return the entry to pack for a message that came again, None if already logged."""
        self.recognised += verdict in (ReturnVerdict.LOGGED, ReturnVerdict.MAYBE_LOGGED)
        # A named message may be dropped whenever its like is in the log: the barriers would do
        # the same.
        if verdict is ReturnVerdict.LOGGED or (verdict is ReturnVerdict.MAYBE_LOGGED and own):
            self._metrics.returned += 1
            return None
        if verdict is not ReturnVerdict.NEW and not own:
            self._metrics.doubtful += 1
            return entry._replace(doubtful=True)
        return entry

    def _pass_over(self, message: _Waiting) -> None:
        self._take_back(message)
        self.acks.passed(message.tag)

    def _take_back(self, message: _Waiting) -> None:
        self._waiting.popleft()
        self.in_hand_bytes -= len(message.body)
