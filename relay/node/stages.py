"""The stages of one run of a node: wired to each other, and changed with the mesh.

A message goes from `packer` (egress to the site's log) over `links` (to the neighbours' logs) to
`deliverer` (log to the local exchange); `context` is what the deliverer's flows share.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from federation.mesh import OLDEST_BATCH_FORMAT
from relay.batches.incarnation import VoidTable
from relay.batches.name_set import NameSet
from relay.delivery.context import POSITION, DeliveryContext
from relay.delivery.deliverer import Deliverer
from relay.ledger.file_writer import FileWriters
from relay.ledger.members import RevisionMembers
from relay.ledger.rows import Stage
from relay.ledger_export import LedgerExport
from relay.ledger_proof import LedgerProof
from relay.links.neighbour_logs import NeighbourLogs
from relay.log.knowledge import LogLag
from relay.log.open_gap import START, OpenGap, gap_reason, gap_row, just_before
from relay.log.reader import LogGap
from relay.log.writer import LogWriter
from relay.node.bad_records import BadRecords
from relay.node.housekeeping import Housekeeping, ThroughRows
from relay.node.link_reports import LinkWatch
from relay.node.links import NodeLinks
from relay.node.multicast import SiteGroup
from relay.node.parts import DeliveryParts, NodeParts
from relay.node.start import MARKED, DelivererMark, NodeStopped
from relay.operator.gaps import SiteGaps
from relay.operator.mending import Mending
from relay.operator.repairing import Repairing
from relay.packing.packer_loop import PackerLoop
from relay.state.node_state import Commit, Loaded, NodeState


@dataclass(frozen=True, slots=True, kw_only=True)
class LastingParts:
    """Parts of a node that outlive one run of its stages."""

    members: RevisionMembers
    gaps: SiteGaps
    ledger: Path
    """Folder of the ledger's files."""
    ledger_of: Callable[[int], Path]
    """Function that returns such a folder of another slot, by number."""
    ledger_writers: FileWriters
    bad_records: BadRecords


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Stages of one run; none has begun when they are made."""

    state: NodeState
    writer: LogWriter
    packer: PackerLoop
    context: DeliveryContext
    deliverer: Deliverer
    links: NodeLinks
    group: SiteGroup
    housekeeping: Housekeeping
    mending: Mending
    repairing: Repairing
    proof: LedgerProof
    members: RevisionMembers
    gaps: SiteGaps

    @property
    def settled(self) -> NameSet:
        """Names of the batches that the site has settled."""
        return self.context.settled

    async def expect(self, identities: Collection[bytes], since_ms: int) -> None:
        """Look the identities up in the ledger, before they come. Raises LedgerUnreadable."""
        await self.proof.expect(identities, since_ms)

    async def export_ledger(self) -> str:
        """Write all ledger rows into files; return the failure, empty if there was none."""
        await self.housekeeping.close_books()
        return self.housekeeping.export_failure

    @classmethod
    def wired(
        cls,
        parts: NodeParts,
        state: NodeState,
        loaded: Loaded,
        writer: LogWriter,
        lasting: LastingParts,
    ) -> Stages:
        """Make the stages of one run. The log is checked, and the state is the one that the broker
        remembers.
        """
        members, gaps = lasting.members, lasting.gaps
        voids = VoidTable(loaded.voids)
        neighbours = NeighbourLogs()
        now_ms = parts.machine.clock.wall_ms
        packer = parts.packer(state, writer, voids, neighbours)
        gaps.load()
        _pass_gap(gaps, state, loaded, now_ms())
        proof = LedgerProof(state, lasting.ledger, lasting.ledger_of)
        watch = LinkWatch(packer.canary)
        context, connection = parts.context(
            DeliveryParts(
                state=state,
                loaded=loaded,
                writer=writer,
                voids=voids,
                absent=members.absent(parts.mesh),
                gaps=gaps,
                delivered_before=proof.delivered,
                clock_differences_ms=watch.clock_differences_ms,
            )
        )
        links = NodeLinks(
            parts, context, members, gaps, neighbours, watch, lasting.bad_records.add_from_link
        )
        housekeeping = Housekeeping(
            context=context,
            export=LedgerExport(state, parts.site, lasting.ledger, lasting.ledger_writers),
            through=ThroughRows(
                parts.cluster_id, state, writer, context.settlement, packer.through, now_ms
            ),
            mark=DelivererMark(state, writer, context.reached, loaded.positions.get(MARKED)),
            links=links,
            members=members,
            window_ms=parts.window_ms,
        )
        return cls(
            state=state,
            writer=writer,
            packer=packer,
            context=context,
            deliverer=Deliverer(context, connection),
            links=links,
            group=SiteGroup(
                parts, writer, state, members, links.have_otherwise, links.brought, voids
            ),
            housekeeping=housekeeping,
            mending=Mending(context, partial(parts.connect, "mending")),
            repairing=Repairing(
                writer,
                voids.is_void,
                packer.repair,
                lambda: packer.batch_format > OLDEST_BATCH_FORMAT,
                lambda: context.mesh.last_lane,
            ),
            proof=proof,
            members=members,
            gaps=gaps,
        )

    def change(self, parts: NodeParts, *, receives: bool) -> None:
        """Have each stage take up a changed mesh; none waits for another. `receives`: links into
        the site may go on.
        """
        self.packer.change(parts.packer_settings())
        self.context.change(
            parts.delivered_mesh(), self.members.absent(parts.mesh), parts.window_ms, parts.held
        )
        self.housekeeping.change(parts.window_ms)
        self.links.change(parts, receives=receives)
        self.group.change(parts, receives=receives)

    async def deliver(self) -> None:
        """Run the deliverer until the node stops. Raises NodeStopped, with a row in the ledger,
        where the log has lost messages that were not delivered yet.
        """
        try:
            await self.deliverer.run()
        except LogGap as met:
            gap = met.since(self.context.settlement.position(self.writer.safe_position) or START)
            now_ms, settled = self.context.now_ms(), self.context.settled
            commit = Commit()
            commit.row(gap_row(gap, Stage.DELIVERED, now_ms))
            self.state.write(commit)
            self.gaps.found(
                OpenGap.of(
                    gap,
                    Stage.DELIVERED,
                    now_ms,
                    self.writer.names_lately(),
                    lambda name: name not in settled,
                )
            )
            # A person may put this folder aside before the node starts again.
            await self.housekeeping.roll(everything=True)
            raise NodeStopped(gap_reason(gap)) from met

    def go_on(self, gap: OpenGap) -> None:
        """Resume the link or the flow that stands at a gap, which a person has accepted."""
        if gap.link:
            self.links.go_on(gap.link)
        else:
            self.deliverer.go_on(gap.key)

    @property
    def undelivered(self) -> LogLag:
        """Part of the log that is not settled here."""
        return self.writer.lag(self.context.settlement.position(self.writer.safe_position))


def _pass_gap(gaps: SiteGaps, state: NodeState, loaded: Loaded, now_ms: int) -> None:
    """Begin behind the gap at which the deliverer stopped, if a person has accepted the gap."""
    accepted = gaps.accepted("delivery")
    if accepted is None:
        return
    place, position = just_before(accepted.gap.first), loaded.positions.get(POSITION)
    if position is not None and position.offset < place.offset:
        commit = Commit()
        commit.position(POSITION, place)
        commit.row(accepted.gap.accepted_row(accepted.by, accepted.at, now_ms))
        state.write(commit)
        loaded.positions[POSITION] = place
    gaps.passed(accepted)
