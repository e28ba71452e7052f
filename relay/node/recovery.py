"""Rebuilds a lost state folder from the site's log and the mark in its broker.

The log's window has the batches of this site; the mark has the position up to which the deliverer
had settled them. Everything up to the mark counts as delivered: its names are settled, its
identities at the barrier. Batches past the mark may have been delivered, and go out (again),
flagged. The packer and the links find their own way back from the logs.

A settled message of which the content store has not all any more counts as delivered by its names
alone: nobody can tell its identity. One past the mark is a gap for its flow, once it is to go out.

Where retention has eaten everything up to the mark, there is no position to begin after: the state
then remembers the mark itself, so that the next start does not take the folder for an older copy.

The former folder is kept as `state.lost-N`. The new folder gets its name once all of it is on the
disk: after a crash before then, the node still finds its state lost. A state that the site's nodes
share goes into a journal: see `relay/cluster/shared_recovery.py`.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from federation.brokers.addresses import AddressBook
from federation.mesh import Mesh
from relay.batches.batch import BatchHead, BatchKind, BatchName, Flow, LoggedBatch, Place
from relay.batches.incarnation import VoidTable
from relay.batches.known_formats import KNOWN, Formats
from relay.content.contents import Contents
from relay.delivery.chunk_builder import ChunkBuilder
from relay.delivery.context import POSITION, DeliveryContext, DeliveryCounters
from relay.delivery.deferred_batches import DeferredBatches
from relay.delivery.doubts import Doubts
from relay.delivery.flow_queue import Job
from relay.delivery.settlement import Point
from relay.ledger.members import RevisionMembers
from relay.ledger.revisions import KeptRevisions
from relay.log.knowledge import UnknownRecord
from relay.log.run import LogEvents, LogState
from relay.log.writer import LogWriter
from relay.node.bindings import check_versions
from relay.node.brokers import Brokers, RabbitBrokers
from relay.node.machine import open_store, this_machine
from relay.node.parts import DeliveryParts, NodeParts
from relay.node.site_folder import MEMBERS, REVISIONS, STATE
from relay.node.stage_order import StageTasks
from relay.node.start import RECOVERED_PAST, NodeStopped, reached_offset, unreadable
from relay.operator.gaps import forget_gaps
from relay.operator.holds import Holds
from relay.state.flow_state import Announced, FlowState
from relay.state.node_state import Commit, NodeState, StateVerdict, judge_state

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LostSlot:
    """Slot of a site whose state is rebuilt, and the ways to its log."""

    site: str
    book: AddressBook
    slot: int = 0
    formats: Formats = KNOWN
    brokers: Brokers | None = None
    """Ways to the site's broker; None: the real ones."""
    contents: Contents | None = None
    """Contents of the log in the store that the site's nodes share; None: there is none."""


@dataclass(slots=True)
class Recovered:
    """Counts of what was found in the log."""

    batches: int = 0
    settled_messages: int = 0
    """Messages up to the mark: not delivered again."""
    doubtful_messages: int = 0
    """Messages past the mark: delivered (again), flagged."""
    gone: set[BatchName] = field(default_factory=set)
    """First pieces of messages up to the mark of which not all content is in the content store."""


async def rebuild(context: DeliveryContext, mark: int | None) -> Recovered:
    """Fill the context's (new) state from its log. Raises SiteLogError; then begin anew.

    `mark` is the broker's, None if this site never delivered anything.
    """
    found = Recovered()
    builders: dict[Flow, ChunkBuilder] = {}
    doubtful: dict[Flow, list[Announced]] = defaultdict(list)
    position: Place | None = None
    async for batches in context.log.read_to_end(0):
        for batch in batches:
            found.batches += 1
            context.voids.learn(batch.header)
            settled = mark is not None and batch.place.offset <= mark
            if settled:
                position = batch.place
            if not context.wants(batch) or context.voids.is_void(batch.header):
                continue
            flow = batch.header.name.series.flow
            if not settled:
                if (
                    flow.origin != context.settings.cluster_id
                    or batch.header.kind is BatchKind.REPAIR
                ):
                    doubtful[flow].append(_whole(batch))
                    found.doubtful_messages += _messages(batch)
                continue
            if flow not in builders:
                deferred = DeferredBatches(flow, context, Doubts(flow, context))
                builders[flow] = ChunkBuilder(flow, FlowState(), context, deferred)
            _settle(context, builders[flow], batch, found)
    commit = Commit()
    for flow, announced in doubtful.items():
        # More than a node ever announces: nobody knows how far the lost one had got.
        commit.flow(flow, FlowState(None, 0, tuple(announced)))
    if position is not None:
        commit.position(POSITION, position)
    elif mark is not None:
        commit.put(RECOVERED_PAST, str(mark).encode())
    await context.state.write_synced(commit)
    return found


def _settle(
    context: DeliveryContext, builder: ChunkBuilder, batch: LoggedBatch, found: Recovered
) -> None:
    name, commit = batch.header.name, Commit()
    if _is_gone(batch, found):
        found.settled_messages += _messages(batch)
    else:
        builder.add(Job(Point(found.batches, batch.place), batch, None))
    chunk = builder.take()
    begin = 0
    while begin < len(chunk):
        columns = chunk.keys[begin:], chunk.hashes[begin:], chunk.places[begin:]
        if chunk.is_repair:
            # Identities of a first delivery too: their rows are lost, and nothing else shows that
            # a repair has brought the message.
            remembered = context.barrier.remembered(*columns[:2]).values()
            judgement = context.barrier.judge_repair(builder, *columns, remembered)
        else:
            judgement = context.barrier.judge(builder, *columns)
        context.barrier.commit(judgement, commit.changes)
        begin += len(judgement)
    context.settled.add(name)
    commit.settled(context.settled, [name.series])
    found.settled_messages += len(chunk)
    context.state.write(commit)


def _is_gone(batch: LoggedBatch, found: Recovered) -> bool:
    """Return True for a piece of a message of which a piece up to this one is gone."""
    name, fragment = batch.header.name, batch.header.fragment
    if fragment is None:
        return False
    first = BatchName(name.series, name.sequence - fragment.piece)
    if isinstance(batch.data, BatchHead):
        found.gone.add(first)
    return first in found.gone


def _whole(batch: LoggedBatch) -> Announced:
    return Announced(batch.header.name, 0, max(1, batch.header.entry_count))


def _messages(batch: LoggedBatch) -> int:
    fragment = batch.header.fragment
    if batch.header.kind is BatchKind.FRAGMENT and fragment is not None:
        return int(fragment.piece + 1 == fragment.pieces)
    return batch.header.entry_count


async def recover(lost: LostSlot, folder: Path) -> Recovered:
    """Make the state in the slot's `folder` anew from the slot's log and the broker's mark. The
    node must not run. Raises StoreError, SiteLogError, NodeStopped.
    """
    state = folder / STATE
    if state.exists():
        open_store(state).close()  # fails if another process has the store open
        number = 1
        while (kept := folder / f"{STATE}.lost-{number}").exists():
            number += 1
        state.rename(kept)
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"{STATE}.recovering"
    shutil.rmtree(unfinished, ignore_errors=True)
    store = open_store(unfinished)
    try:
        found = await rebuild_state(NodeState(store), lost, folder)
    finally:
        store.close()
    unfinished.rename(state)
    forget_gaps(folder)
    return found


async def rebuild_state(state: NodeState, lost: LostSlot, folder: Path) -> Recovered:
    """Fill a new state from the slot's log; `folder` has the files that go with the state. Raises
    StoreError, SiteLogError, NodeStopped.
    """
    retired = KeptRevisions(folder / REVISIONS).retired(lost.book.mesh)
    members = RevisionMembers(folder / MEMBERS)
    members.load([lost.book.mesh, *retired])
    parts = _parts(lost, retired)
    async with _connected(parts, state) as writer:
        mark = await (await writer.connected()).load_mark()
        state.begin(parts.machine.random_bytes(16))
        await state.store.synced()
        context, _ = parts.context(
            DeliveryParts(
                state=state,
                loaded=state.load(),
                writer=writer,
                voids=VoidTable(),
                absent=members.absent(lost.book.mesh),
            )
        )
        return await rebuild(context, mark)


async def is_lost(state: NodeState, lost: LostSlot) -> bool:
    """Return True if a node would find that a state is none, or older than what the site has
    delivered. The state, a copy, may change. Raises StoreError, StateError, SiteLogError,
    NodeStopped.
    """
    check_versions(state)
    if state.is_new:
        return True
    loaded = state.load()
    async with _connected(_parts(lost), state) as writer:
        mark = await (await writer.connected()).load_mark()
        return judge_state(True, reached_offset(loaded, state, writer), mark) is not StateVerdict.OK


def _parts(lost: LostSlot, retired: Sequence[Mesh] = ()) -> NodeParts:
    return NodeParts(
        *(lost.site, lost.book, retired, Holds(), False, DeliveryCounters(), lost.formats),
        machine=replace(this_machine(), contents=lost.contents),
        brokers=lost.brokers or RabbitBrokers(lost.site, slot=lost.slot),
        slot=lost.slot,
    )


@asynccontextmanager
async def _connected(parts: NodeParts, state: NodeState) -> AsyncIterator[LogWriter]:
    """Connect with the slot's log, as a node with this state would. Raises NodeStopped."""
    site = parts.site
    ending = asyncio.Event()
    unknown: list[UnknownRecord] = []

    def on_unknown(error: UnknownRecord) -> None:
        unknown.append(error)
        ending.set()

    def on_state(now: LogState, reason: str) -> None:
        if now is LogState.CONNECTING and reason:
            log.warning("%s: log: %s", site, reason, extra={"event": "log-away", "site": site})

    # Records that are no batches stay in the log: the former state's node has put them aside.
    events = LogEvents(lambda *_: None, lambda _: None, on_state, on_unknown)
    writer = parts.writer(state, events)
    tasks = StageTasks(site, ending)
    tasks.begin("log", writer.run_forever())
    try:
        if not await tasks.until(writer.running()):
            raise NodeStopped(unreadable(unknown[0]))
        yield writer
    finally:
        await writer.close()
        await tasks.over()
