"""Rebuilds a lost state folder from what the site's log and its broker still know.

The log's window says which batches this site has; the mark that the deliverer left in the broker
says up to where they were settled. Up to the mark everything counts as delivered: its names are
settled, its identities at the barrier. What lies past the mark may have been delivered: it goes
out (again), flagged. The packer and the links find their own way back from the logs.

Where retention has eaten everything up to the mark there is no place to begin after: the state
remembers the mark itself, so that the next start does not take it for an older copy.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from relay.batches.batch import BatchKind, Flow, LoggedBatch, Place
from relay.delivery.chunk_builder import ChunkBuilder
from relay.delivery.context import POSITION, DeliveryContext
from relay.delivery.flow_queue import Job
from relay.delivery.settlement import Point
from relay.state.flow_state import Announced, FlowState
from relay.state.node_state import Commit, NodeState

_PAST = "recovered past"


@dataclass(slots=True)
class Recovered:
    """What was found in the log."""

    batches: int = 0
    settled_messages: int = 0
    """Up to the mark: not delivered again."""
    doubtful_messages: int = 0
    """Past the mark: delivered (again), flagged."""


async def rebuild(context: DeliveryContext, mark: int | None) -> Recovered:
    """Fill the context's (new) state from its log. Raises SiteLogError; then begin anew.

    `mark` is the broker's, None when this site never delivered anything.
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
                builders[flow] = ChunkBuilder(flow, FlowState(), context)
            _settle(context, builders[flow], batch, found)
    commit = Commit()
    for flow, announced in doubtful.items():
        # More than a run would ever announce: nobody knows how far the lost one had got.
        commit.flow(flow, FlowState(None, 0, tuple(announced)))
    if position is not None:
        commit.position(POSITION, position)
    elif mark is not None:
        commit.put(_PAST, str(mark).encode())
    await context.state.write_synced(commit)
    return found


def recovered_past(state: NodeState) -> int | None:
    """The mark up to which nothing was left when this state was rebuilt; None if there was."""
    kept = state.get(_PAST)
    return None if kept is None else int(kept)


def _settle(
    context: DeliveryContext, builder: ChunkBuilder, batch: LoggedBatch, found: Recovered
) -> None:
    builder.add(Job(Point(found.batches, batch.place), batch))
    chunk = builder.take()
    commit = Commit()
    begin = 0
    while begin < len(chunk):
        columns = chunk.keys[begin:], chunk.hashes[begin:], chunk.places[begin:]
        if chunk.is_repair:
            # Also what is remembered by its first delivery: the rows that told it are lost, and
            # nothing else would say that a repair has brought it.
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
