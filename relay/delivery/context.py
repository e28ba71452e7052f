"""State that the flows of one site's deliverer share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from dedup.barrier import Barrier
from federation.mesh import LargeRule, Mesh
from relay.batches.batch import BatchHeader, BatchKind, BatchName, Flow, LoggedBatch, Place
from relay.batches.incarnation import VoidTable
from relay.batches.name_set import NameSet
from relay.content.contents import Contents, StoringRule
from relay.delivery.delays import DeliveryDelays
from relay.delivery.local_exchange import LocalExchange
from relay.delivery.settlement import Settlement
from relay.ledger.members import Absent
from relay.ledger_proof import Sought
from relay.log.open_gap import Accepted, OpenGap
from relay.log.reader import LogGap, LogReader, PlaceLost
from relay.log.writer import LogWriter
from relay.state.deferred_entries import DeferredEntry
from relay.state.flow_state import ANNOUNCED_AT_MOST, Announced, FlowState
from relay.state.node_state import Commit, NodeState
from relay.tracing.batch_trace import BatchTrace
from relay.waiters import Signal, first_of, set_within

T = TypeVar("T")

POSITION = "deliverer"
"""Name of the deliverer's position in the node's state."""

DeliveredBefore = Callable[[Collection[Sought], int], Awaitable[set[Sought]]]

_WITH_MESSAGES = frozenset({BatchKind.MESSAGES, BatchKind.FRAGMENT, BatchKind.REPAIR})


async def all_of(sought: Collection[Sought], since_ms: int) -> set[Sought]:
    """Report all messages as delivered: without a ledger, nothing is delivered a second time."""
    return set(sought)


@dataclass(slots=True)
class DeliveryCounters:
    """Outcomes of messages since the node started."""

    delivered: int = 0
    duplicates: int = 0
    identity_conflicts: int = 0
    redelivered: int = 0
    repaired: int = 0
    """Delivered messages that a repair brought."""
    unrouted: int = 0
    expired: int = 0
    dead_lettered: int = 0
    """Messages given up, whatever an operator did since; the broker counts those still waiting."""
    quarantined: int = 0
    deferred: int = 0
    """Messages that were refused, or are copies of refused ones, and let later messages pass."""
    retried: int = 0
    """Dead letters and quarantined messages that an operator had sent again."""
    dropped: int = 0
    """Dead letters and quarantined messages that an operator gave up."""
    own: int = 0

    @property
    def put_aside_or_mended(self) -> int:
        """Number that grows with each change of the queues of undelivered messages."""
        return self.dead_lettered + self.quarantined + self.retried + self.dropped


@dataclass(slots=True)
class DeliverySettings:
    """Names and limits of one site's deliverer."""

    site: str
    cluster_id: str
    user: str
    """User as which the deliverer publishes."""
    dead_letter_queue: str
    quarantine_queue: str
    confirm_timeout_s: float = 30.0
    """Time without an answer (a leaderless queue) after which a publish counts as unknown."""
    parked_poll_s: float = 2.0
    """Interval at which a flow checks for its missing exchange."""
    announced_at_most: int = ANNOUNCED_AT_MOST
    """Most messages of a flow that are announced and not settled, at least a chunk's: what a crash
    may flag."""


class GapBook(Protocol):
    """Register of gaps, implemented by `relay.operator.gaps.SiteGaps`."""

    def found(self, gap: OpenGap) -> None:
        """Note that a stage has stopped at a gap."""
        ...

    def accepted(self, key: str) -> Accepted | None:
        """Return a person's acceptance of the gap, or None if there is none."""
        ...

    def passed(self, accepted: Accepted) -> None:
        """Note that the stage's position is behind the gap, and the ledger has the row."""
        ...


@dataclass(slots=True)
class DeliveryContext:
    """Needs of a flow besides its queue. `mesh` is replaced when changed."""

    settings: DeliverySettings
    mesh: Mesh
    log: LogWriter
    state: NodeState
    settled: NameSet
    barrier: Barrier
    voids: VoidTable
    settlement: Settlement
    counters: DeliveryCounters
    stopping: Signal
    now_ms: Callable[[], int]
    random: Callable[[], float]
    exchange: Callable[[], Awaitable[LocalExchange | None]]
    """Wait for the open connection to the site's broker; None when the node stops."""
    open_exchange: Callable[[], LocalExchange | None]
    """Return the connection to the site's broker if open at present."""
    window_ms: int
    position: Place | None = None
    """Position stored last."""
    contents: Contents | None = None
    """Contents in the site's content store; None: the site's nodes share none."""
    held: str = ""
    """Reason why delivery is held, empty if not held."""
    released: Signal = field(default_factory=Signal)
    """Signal, set when `held` becomes empty."""
    delivered_before: DeliveredBefore = all_of
    """Return the sought messages of which the site's ledger has a delivery at or after a time (ms).
    Raises LedgerUnreadable."""
    flows: dict[Flow, FlowState] = field(default_factory=dict)
    """Latest state of each flow; each flow's worker replaces its own."""
    deferred: dict[Flow, dict[BatchName, tuple[DeferredEntry, ...]]] = field(default_factory=dict)
    """Deferred messages of a former process, until their batches are met."""
    absent: Absent = field(default_factory=dict)
    """Revision -> sites that joined later, so get none of its batches for every site."""
    gaps: GapBook | None = None
    """Register for flows that stand at a gap, or None without one."""
    clock_differences_ms: dict[str, int] = field(default_factory=dict)
    """Origin's clock minus ours, by cluster ID, where links have measured the difference."""
    delays: DeliveryDelays = field(default_factory=DeliveryDelays)
    trace: BatchTrace | None = None
    """Reports of delivered batches, or None while nothing is traced."""

    def wants(self, batch: LoggedBatch) -> bool:
        """True if the batch has messages for this site.

        The origin named the recipients, by the mesh file that it knew; ours may be older or newer
        by now. The flow itself looks up the exchange for delivery.
        """
        header = batch.header
        if header.kind not in _WITH_MESSAGES:
            return False
        series, own = header.name.series, self.settings.cluster_id
        if header.kind is BatchKind.REPAIR:
            # Also our own repairs: messages in our log alone that were not delivered here.
            return own in series.destinations
        if series.origin == own:
            # Never delivered here, whatever the set; but the barrier has to know our own
            # messages of exchanges that are.
            exchange = self.mesh.exchanges.get(series.exchange)
            return exchange is None or exchange.reaches(self.settings.site)
        if series.destinations:
            return own in series.destinations
        return own not in self.absent.get(header.revision, ())

    def referring(self, exchange: str) -> StoringRule | None:
        """Rule by which large messages of an exchange go out without their bodies; None: with."""
        found = self.mesh.exchanges.get(exchange)
        if self.contents is None or found is None or found.large is not LargeRule.REFERENCE:
            return None
        return self.contents.rule

    def announced(self) -> Iterator[Announced]:
        """Yield what flows have announced and not settled: rows are still to come."""
        for state in self.flows.values():
            yield from state.intent

    def counted(self, header: BatchHeader) -> int:
        """The batch's number over its whole incarnation; -1 for a void batch."""
        return -1 if self.voids.is_void(header) else header.incarnation_sequence

    def note_delays(self, flow: Flow, header: BatchHeader, begun_ms: int, delivered: int) -> None:
        """Note the delays of delivered messages of a batch, which the reader met at `begun_ms`."""
        now_ms = self.now_ms()
        ahead_ms = self.clock_differences_ms.get(flow.origin, 0)
        since_ms = now_ms - header.first_published_ms + ahead_ms
        self.delays.delivered(flow, since_ms / 1000, delivered)
        self.delays.stage.observe((now_ms - begun_ms) / 1000, delivered)

    def hold(self, why: str) -> None:
        """Hold delivery from now on; with an empty reason, release."""
        self.held = why
        if why:
            self.released.clear()
        else:
            self.released.set()

    def change(self, mesh: Mesh, absent: Absent, window_ms: int, held: str) -> None:
        """Take up a changed mesh file, and what is held back now."""
        self.mesh, self.absent = mesh, absent
        self.barrier.set_window(window_ms)
        self.refresh_window()
        self.hold(held)

    def learn_absent(self, absent: Absent) -> None:
        """Take up what a neighbour has announced of the sites of a revision."""
        self.absent = absent

    def refresh_window(self) -> None:
        """Take up how far back the barrier remembers."""
        self.window_ms = self.barrier.memory_ms

    async def next_batches(self, reader: LogReader, most_bytes: int) -> list[LoggedBatch] | None:
        """Return the reader's next batches, or None when the node stops."""
        try:
            while not (batches := reader.at_hand(most_bytes)):
                news = reader.news()
                if news is None:
                    return await self.or_stop(reader.next_batches(most_bytes))
                if self.stopping.is_set():
                    news.cancel()
                    return None
                await first_of(self.stopping, waiter=news)
            return batches
        except PlaceLost as lost:
            if isinstance(lost, LogGap):
                raise
            # The log lost its tail, or was made anew: settled batches stay settled, by name.
            reader.rewind(None)
            return []

    async def or_stop(self, step: Awaitable[T]) -> T | None:
        """Return the step's result, or None if the node stops first; then the step is cancelled."""
        doing = asyncio.ensure_future(step)
        stopping = asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return doing.result() if doing.done() else None
        finally:
            doing.cancel()
            stopping.cancel()

    def save_position(self, commit: Commit) -> None:
        """Add the deliverer's log position to the commit on which the position rests."""
        place = self.settlement.position(self.log.safe_position)
        if place is not None:
            self.position = place
            commit.position(POSITION, place)

    def reached(self) -> Place | None:
        """Store the deliverer's log position as of now, and return it."""
        before, writing = self.position, Commit()
        # By the last commit, perhaps the last for long, less of the log had been read back.
        self.save_position(writing)
        if self.position != before:
            self.state.write(writing)
        return self.position

    async def sleep(self, seconds: float) -> bool:
        """Wait for so long; return False at once when the node stops."""
        return not await set_within(seconds, self.stopping)

    async def unless_stopping(self, signal: Signal) -> bool:
        """Wait for the signal; return False if the node stops first."""
        await first_of(signal, self.stopping)
        return not self.stopping.is_set()
