"""Groups one exchange's egress messages into parcels for the log. No I/O: told what came, it tells
what is to be appended and what may be acknowledged.

After a packer's start the first messages are compared with what the log has of the flow
(`returned_prefix`); from the first fresh one on they are simply packed.

Where sites narrow the exchange, each message has a destination set of its own, and the open batch
is sealed when the next message has another one. So the log has the flow's messages in the order in
which egress had them, whatever their sets: all that order and the comparison rest on. Several open
batches would make fuller ones of a row of messages for ever other sites, at the price of both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from federation.destinations import DestinationIndex
from relay.batches.batch import Entry
from relay.batches.fragments import FRAGMENT_ABOVE
from relay.packing.egress import EgressMessage
from relay.packing.egress_acks import EgressAcks, Stretch
from relay.packing.intake import Cleaned, Intake
from relay.packing.packer_metrics import PackerMetrics
from relay.packing.packer_settings import PackedExchange, PackerSettings
from relay.packing.returned_prefix import Returned, ReturnedPrefix, message_digest

_ENTRY_BYTES = 41
"""What an entry takes in a batch beside its key, properties and body."""


@dataclass(slots=True)
class Parcel:
    """What goes into the log together: the entries of one batch, or one big message."""

    flow: FlowPacker
    entries: list[Entry]
    size: int
    destinations: tuple[str, ...]
    stretch: Stretch
    big: bool = False

    @property
    def exchange(self) -> str:
        return self.flow.exchange.name

    @property
    def lane(self) -> int:
        return self.flow.exchange.lane


@dataclass(slots=True)
class _Waiting:
    """A message whose verdict is out; `cleaned` None: ours coming round, to be passed over."""

    tag: int
    routing_key: bytes
    cleaned: Cleaned | None
    body: bytes


class FlowPacker:
    """One consumption of one egress queue by one incarnation.

    `sealed` is called with every parcel, in order. `now_ms` is the time in ms since 1970.
    """

    def __init__(
        self,
        exchange: PackedExchange,
        settings: PackerSettings,
        intake: Intake,
        returned: ReturnedPrefix,
        sealed: Callable[[Parcel], None],
        now_ms: Callable[[], int],
        metrics: PackerMetrics,
    ) -> None:
        self.exchange = exchange
        self.acks = EgressAcks()
        self.recognised = 0
        """Messages that came back, and that the log has, or had perhaps."""
        self.in_hand_bytes = 0
        """Taken off egress, not yet confirmed by the log."""
        self.in_flight = 0
        """Parcels that were sealed and that the log has not confirmed."""
        self.is_due = False
        """The open batch has lingered, and goes when those in flight are confirmed."""
        self._intake = intake
        self._returned: ReturnedPrefix | None = returned
        self._waiting: deque[_Waiting] = deque()
        self._index = None if exchange.addressing is None else DestinationIndex(exchange.addressing)
        self._destinations = exchange.destinations  # of the open batch
        self._entries: list[Entry] = []
        self._size = 0
        self._most_entries = settings.batch_entries
        self._most_bytes = settings.batch_bytes
        self._sealed = sealed
        self._now_ms = now_ms
        self._metrics = metrics

    @property
    def has_open_batch(self) -> bool:
        return bool(self._entries)

    @property
    def oldest_published_ms(self) -> int | None:
        """Of the open batch; None without one. What is undecided has no time yet."""
        return self._entries[0].published_ms if self._entries else None

    @property
    def undecided(self) -> int:
        """Messages that wait until it is known whether the log has them."""
        return len(self._waiting)

    @property
    def compared(self) -> bool:
        """Whether all that could come back has."""
        return self._returned is None

    def is_unwanted(self, parcel: Parcel) -> bool:
        """Whether no other site takes what is in there."""
        return self._index is not None and parcel.destinations == self._index.nobody

    def take(self, messages: Sequence[EgressMessage]) -> None:
        """The next messages, in the order of their tags."""
        if self._returned is not None:
            messages = self._compare(messages)
        now = self._now_ms()
        clean = self._intake.clean
        entry_of = self._intake.entry
        pack = self._pack if self._index is None else self._pack_addressed
        own = passed = 0
        for tag, _, _, key, properties, body in messages:
            cleaned = clean(properties)
            if cleaned is None:
                own += 1
                passed = tag
                continue
            if passed:
                self.acks.passed(passed)
                passed = 0
            pack(tag, entry_of(key, cleaned, body, now)[0])
        if passed:
            self.acks.passed(passed)
        self._metrics.own += own
        if self._intake.malformed:
            self._metrics.malformed += self._intake.malformed
            self._intake.malformed = 0

    def seal_lingered(self) -> None:
        """The open batch has waited long enough; it goes now, or right behind those in flight.

        Under load the log's own pace gathers it: a stream confirms in order, so it would hardly be
        there earlier, and a batch costs every stage of the mesh the same whatever it holds.
        """
        self.is_due = bool(self._entries and self.in_flight)
        if not self.is_due:
            self.seal()

    def confirmed(self) -> None:
        """The log has confirmed a parcel of those in flight."""
        self.in_flight -= 1
        if self.is_due and not self.in_flight:
            self.seal()

    def seal(self) -> None:
        """Close the open batch, if there is one."""
        self.is_due = False
        if not self._entries:
            return
        entries, self._entries = self._entries, []
        size, self._size = self._size, 0
        self._hand_over(entries, size)

    def give_up_waiting(self) -> None:
        """Decide about what waits, with what is known now."""
        if self._returned is not None:
            self._apply(self._returned.give_up_waiting())

    def _pack_addressed(self, tag: int, entry: Entry) -> None:
        """As `_pack`, where the destinations follow from the key."""
        assert self._index is not None
        destinations = self._index.of(entry.routing_key)
        if destinations is not self._destinations:
            if destinations != self._destinations:
                self.seal()
            self._destinations = destinations
        self._pack(tag, entry)

    def _pack(self, tag: int, entry: Entry) -> None:
        size = _ENTRY_BYTES + len(entry.routing_key) + len(entry.properties) + len(entry.body)
        if self._size + size > self._most_bytes:
            self.seal()
        self.acks.packed(tag)
        self.in_hand_bytes += size
        if size > FRAGMENT_ABOVE:
            self._hand_over([entry], size, big=True)
            return
        self._entries.append(entry)
        self._size += size
        if len(self._entries) >= self._most_entries:
            self.seal()

    def _hand_over(self, entries: list[Entry], size: int, *, big: bool = False) -> None:
        self.in_flight += 1
        self._sealed(Parcel(self, entries, size, self._destinations, self.acks.sealed(), big))

    # What came before may come again

    def _compare(self, messages: Sequence[EgressMessage]) -> Sequence[EgressMessage]:
        """Take those that were handed out before; the others are returned."""
        returned = self._returned
        assert returned is not None
        digests = []
        fresh: Sequence[EgressMessage] = ()
        for number, (tag, redelivered, _, key, properties, body) in enumerate(messages):
            if not redelivered:
                fresh = messages[number:]
                break
            cleaned = self._intake.clean(properties)
            self._waiting.append(_Waiting(tag, key, cleaned, body))
            self.in_hand_bytes += len(body)
            if cleaned is not None:
                digests.append(message_digest(key, cleaned.properties, body))
        self._apply(returned.take(digests) if digests else [])
        if fresh:
            self._apply(returned.fresh())
        if fresh or returned.over:
            self._returned = None
        return fresh

    def _apply(self, verdicts: Sequence[Returned]) -> None:
        now = self._now_ms()
        verdict_of = iter(verdicts)
        waiting = self._waiting
        pack = self._pack if self._index is None else self._pack_addressed
        while waiting:
            one = waiting[0]
            if one.cleaned is None:
                self._pass_over(one)
                self._metrics.own += 1
                continue
            verdict = next(verdict_of, None)
            if verdict is None:
                return
            self.recognised += verdict in (Returned.LOGGED, Returned.MAYBE_LOGGED)
            entry, own = self._intake.entry(one.routing_key, one.cleaned, one.body, now)
            # A message that names itself may be dropped whenever its like is in the log: the
            # barriers would do just that with it.
            if verdict is Returned.LOGGED or (verdict is Returned.MAYBE_LOGGED and own):
                self._pass_over(one)
                self._metrics.returned += 1
                continue
            if verdict is not Returned.NEW and not own:
                entry = entry._replace(doubtful=True)
                self._metrics.doubtful += 1
            self._take_back(one)
            pack(one.tag, entry)

    def _pass_over(self, one: _Waiting) -> None:
        self._take_back(one)
        self.acks.passed(one.tag)

    def _take_back(self, one: _Waiting) -> None:
        self._waiting.popleft()
        self.in_hand_bytes -= len(one.body)
