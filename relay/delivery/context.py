"""What the flows of one site's deliverer share. Wired by `deliverer`; no logic of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from dedup.barrier import Barrier
from federation.mesh import Mesh
from relay.batches.batch import BatchHeader, BatchKind, Flow, LoggedBatch, Place
from relay.batches.incarnation import VoidTable
from relay.batches.name_set import NameSet
from relay.delivery.local_exchange import LocalExchange
from relay.delivery.settlement import Settlement
from relay.ledger.members import Absent
from relay.ledger_files.proof import Sought
from relay.log.open_gap import Accepted, OpenGap
from relay.log.reader import LogGap, LogReader, PlaceLost
from relay.log.writer import LogWriter
from relay.state.flow_state import Announced, FlowState
from relay.state.node_state import Commit, NodeState
from relay.waiters import Signal, first_of, set_within

T = TypeVar("T")

POSITION = "deliverer"
"""Name of the deliverer's position in the node's state."""

_WITH_MESSAGES = frozenset({BatchKind.MESSAGES, BatchKind.FRAGMENT, BatchKind.REPAIR})


async def _all(sought: Collection[Sought], since_ms: int) -> set[Sought]:
    """Where there is no ledger to ask, nothing is delivered a second time."""
    return set(sought)


@dataclass(slots=True)
class DeliveryCounters:
    """What has become of messages since the node started."""

    delivered: int = 0
    duplicates: int = 0
    identity_conflicts: int = 0
    redelivered: int = 0
    repaired: int = 0
    """Of the delivered ones, those that a repair brought."""
    unrouted: int = 0
    expired: int = 0
    dead_lettered: int = 0
    """Given up, whatever was done about them since; what waits is counted at the broker."""
    quarantined: int = 0
    retried: int = 0
    """Dead letters, and what was in quarantine, that an operator had sent again."""
    dropped: int = 0
    """... that an operator gave up."""
    own: int = 0

    @property
    def put_aside_or_mended(self) -> int:
        """Grows with everything that this node does to the queues of what was put aside."""
        return self.dead_lettered + self.quarantined + self.retried + self.dropped


@dataclass(slots=True)
class DeliverySettings:
    """Names and limits of one site's deliverer."""

    site: str
    cluster_id: str
    user: str
    """The user that it publishes as."""
    dead_letter_queue: str
    quarantine_queue: str
    confirm_timeout_s: float = 30.0
    """Without an answer for so long (a leaderless queue), a publish counts as unknown."""
    parked_poll_s: float = 2.0
    """How often a flow looks whether its exchange is there now."""


class GapBook(Protocol):
    """`relay.operator.gaps.SiteGaps` is it."""

    def found(self, gap: OpenGap) -> None:
        """A stage has stopped there."""
        ...

    def accepted(self, key: str) -> Accepted | None:
        """What a person has said of the gap of this stage; None: nothing, or there is none."""
        ...

    def passed(self, accepted: Accepted) -> None:
        """The stage's position is behind it, and the ledger has the row."""
        ...


@dataclass(slots=True)
class DeliveryContext:
    """Everything that a flow needs besides its own queue. `mesh` is replaced when it changes."""

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
    """The open connection to the site's broker; waits for one; None when stopping."""
    window_ms: int
    position: Place | None = None
    """What was stored last."""
    held: str = ""
    """Why nothing is delivered at present; empty while it is."""
    released: Signal = field(default_factory=Signal)
    """Set when `held` becomes empty."""
    delivered_before: Callable[[Collection[Sought], int], Awaitable[set[Sought]]] = _all
    """Of these, what the site's ledger has a delivery of, at or after a time (ms). Raises
    LedgerUnreadable."""
    flows: dict[Flow, FlowState] = field(default_factory=dict)
    """State of each flow, as stored last; each flow's worker replaces its own."""
    absent: Absent = field(default_factory=dict)
    """Revision -> sites that its batches for every site are not for: they joined later."""
    gaps: GapBook | None = None
    """Told of a flow that stands at a gap; None: nobody can accept it while the node runs."""
    clock_differences_ms: dict[str, int] = field(default_factory=dict)
    """Origin's clock minus ours, by cluster ID, where links have measured it."""

    def wants(self, batch: LoggedBatch) -> bool:
        """Whether this site has anything to do with the batch's messages.

        Its origin said who is to get it, by the mesh file that it knew. Ours may be older or newer
        by now; what exchange to deliver to is the flow's to find out.
        """
        header = batch.header
        if header.kind not in _WITH_MESSAGES:
            return False
        series, own = header.name.series, self.settings.cluster_id
        if header.kind is BatchKind.REPAIR:
            # Also one of our own making: of what only our log has, and we lack.
            return own in series.destinations
        if series.origin == own:
            # Never for ourselves, whatever its set; but of what is delivered here, the barrier
            # has to know our own messages too.
            exchange = self.mesh.exchanges.get(series.exchange)
            return exchange is None or exchange.reaches(self.settings.site)
        if series.destinations:
            return own in series.destinations
        return own not in self.absent.get(header.revision, ())

    def announced(self) -> Iterator[Announced]:
        """Yield what all flows have announced and not settled: messages whose ledger rows are
        still to come.
        """
        for state in self.flows.values():
            yield from state.intent

    def counted(self, header: BatchHeader) -> int:
        """The batch's number over its whole incarnation; -1 for a void one."""
        return -1 if self.voids.is_void(header) else header.incarnation_sequence

    def hold(self, why: str) -> None:
        """Deliver nothing from now on; with an empty reason, go on."""
        self.held = why
        if why:
            self.released.clear()
        else:
            self.released.set()

    async def next_batches(self, reader: LogReader, most_bytes: int) -> list[LoggedBatch] | None:
        """What the reader has next; None when the node is stopping."""
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
            # The log lost its tail, or was made anew: what is settled stays so, by name.
            reader.rewind(None)
            return []

    async def or_stop(self, step: Awaitable[T]) -> T | None:
        """What the step gives; None when the node is stopping first, and the step is cancelled."""
        doing = asyncio.ensure_future(step)
        stopping = asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return doing.result() if doing.done() else None
        finally:
            doing.cancel()
            stopping.cancel()

    def save_position(self, commit: Commit) -> None:
        """Add the deliverer's position in the log to a commit: it moves with what it rests on."""
        place = self.settlement.position(self.log.safe_position)
        if place is not None:
            self.position = place
            commit.position(POSITION, place)

    async def sleep(self, seconds: float) -> bool:
        """Wait so long; False at once when the node is stopping."""
        return not await set_within(seconds, self.stopping)

    async def unless_stopping(self, signal: Signal) -> bool:
        """Wait for the signal; False when the node is stopping first."""
        await first_of(signal, self.stopping)
        return not self.stopping.is_set()
