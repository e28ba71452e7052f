"""Rebuilds a lost state folder from the site's log and the mark in its broker.

The log's window has the batches of this site; the mark has the position up to which the deliverer
had settled them. Everything up to the mark counts as delivered: its names are settled, its
identities at the barrier. Batches past the mark may have been delivered, and go out (again),
flagged. The packer and the links find their own way back from the logs.

Where retention has eaten everything up to the mark, there is no position to begin after: the state
then remembers the mark itself, so that the next start does not take the folder for an older copy.

The former folder is kept as `state.lost-N`. The new folder gets its name once all of it is on the
disk: after a crash before then, the node still finds its state lost.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from federation.brokers.addresses import AddressBook
from relay.batches.batch import BatchKind, Flow, LoggedBatch, Place
from relay.batches.incarnation import VoidTable
from relay.batches.known_formats import KNOWN, Formats
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
from relay.node.brokers import Brokers, RabbitBrokers
from relay.node.machine import open_store
from relay.node.parts import DeliveryParts, NodeParts
from relay.node.site_folder import MEMBERS, REVISIONS, STATE
from relay.node.stage_order import StageTasks
from relay.node.start import RECOVERED_PAST, NodeStopped, unreadable
from relay.operator.gaps import forget_gaps
from relay.operator.holds import Holds
from relay.state.flow_state import Announced, FlowState
from relay.state.node_state import Commit, NodeState

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Recovered:
    """Counts of what was found in the log."""

    batches: int = 0
    settled_messages: int = 0
    """Messages up to the mark: not delivered again."""
    doubtful_messages: int = 0
    """Messages past the mark: delivered (again), flagged."""


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
    builder.add(Job(Point(found.batches, batch.place), batch, None))
    chunk = builder.take()
    commit = Commit()
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
    for part in chunk.parts:
        for name in part.names:
            context.settled.add(name)
        commit.settled(context.settled, [part.header.name.series])
    found.settled_messages += len(chunk)
    context.state.write(commit)


def _whole(batch: LoggedBatch) -> Announced:
    return Announced(batch.header.name, 0, max(1, batch.header.entry_count))


def _messages(batch: LoggedBatch) -> int:
    fragment = batch.header.fragment
    if batch.header.kind is BatchKind.FRAGMENT and fragment is not None:
        return int(fragment.piece + 1 == fragment.pieces)
    return batch.header.entry_count


async def recover(
    site: str,
    book: AddressBook,
    folder: Path,
    formats: Formats = KNOWN,
    brokers: Brokers | None = None,
    slot: int = 0,
) -> Recovered:
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
        found = await _rebuild(
            NodeState(store),
            site,
            book,
            folder,
            formats,
            brokers or RabbitBrokers(site, slot=slot),
            slot,
        )
    finally:
        store.close()
    unfinished.rename(state)
    forget_gaps(folder)
    return found


async def _rebuild(
    state: NodeState,
    site: str,
    book: AddressBook,
    folder: Path,
    formats: Formats,
    brokers: Brokers,
    slot: int,
) -> Recovered:
    retired = KeptRevisions(folder / REVISIONS).retired(book.mesh)
    members = RevisionMembers(folder / MEMBERS)
    members.load([book.mesh, *retired])
    parts = NodeParts(
        *(site, book, retired, Holds(), False, DeliveryCounters(), formats),
        brokers=brokers,
        slot=slot,
    )
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
        mark = await (await writer.connected()).load_mark()
        state.begin(parts.machine.random_bytes(16))
        await state.store.synced()
        context, _ = parts.context(
            DeliveryParts(
                state=state,
                loaded=state.load(),
                writer=writer,
                voids=VoidTable(),
                absent=members.absent(book.mesh),
            )
        )
        return await rebuild(context, mark)
    finally:
        await writer.close()
        await tasks.over()
