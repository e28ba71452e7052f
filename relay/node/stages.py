"""The stages of one run of a node: wired to each other, and changed with the mesh."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from federation.mesh import OLDEST_BATCH_FORMAT
from relay.batches.batch import Place
from relay.batches.incarnation import VoidTable
from relay.batches.name_set import NameSet
from relay.delivery.context import POSITION, DeliveryContext
from relay.delivery.deliverer import Deliverer
from relay.ledger.file_writer import FileWriters
from relay.ledger.members import RevisionMembers
from relay.ledger.rows import Stage
from relay.ledger_files.export import LedgerExport
from relay.ledger_files.proof import LedgerProof
from relay.links.neighbour_logs import NeighbourLogs
from relay.log.knowledge import LogLag
from relay.log.open_gap import START, OpenGap, gap_reason, gap_row, just_before
from relay.log.reader import LogGap
from relay.log.writer import LogWriter
from relay.node.deliverer_mark import MARKED, DelivererMark
from relay.node.housekeeping import Housekeeping
from relay.node.links import NodeLinks
from relay.node.parts import NodeParts
from relay.node.start import NodeStopped
from relay.node.through_rows import ThroughRows
from relay.operator.gaps import SiteGaps
from relay.operator.mending import Mending
from relay.operator.repairing import Repairing
from relay.packing.packer_loop import PackerLoop
from relay.state.node_state import Commit, Loaded, NodeState


@dataclass(frozen=True, slots=True)
class Stages:
    """Of one run; none has begun yet when they are made."""

    state: NodeState
    writer: LogWriter
    packer: PackerLoop
    context: DeliveryContext
    deliverer: Deliverer
    links: NodeLinks
    housekeeping: Housekeeping
    mending: Mending
    repairing: Repairing
    proof: LedgerProof
    members: RevisionMembers
    gaps: SiteGaps
    now_ms: Callable[[], int]

    @property
    def settled(self) -> NameSet:
        """Names of the batches that the site has settled."""
        return self.context.settled

    async def export_ledger(self) -> str:
        """Write all that the stages did into the ledger's files; return why not, or nothing."""
        await self.housekeeping.tell_all()
        return self.housekeeping.export_failure

    @classmethod
    def wired(
        cls,
        parts: NodeParts,
        state: NodeState,
        loaded: Loaded,
        writer: LogWriter,
        members: RevisionMembers,
        ledger: Path,
        ledger_writers: FileWriters,
        quarantine: Callable[[bytes, str], None],
        gaps: SiteGaps,
    ) -> Stages:
        """`quarantine` is told of what came over a link and is no batch, and why."""
        voids = VoidTable(loaded.voids)
        neighbours = NeighbourLogs()
        now_ms = parts.machine.clock.wall_ms
        packer = parts.packer(state, writer, voids, neighbours)
        gaps.load()
        _pass_gap(gaps, state, loaded, now_ms())
        context, connection = parts.context(state, loaded, writer, voids)
        context.gaps = gaps
        context.absent = members.absent(parts.mesh)
        proof = LedgerProof(state, ledger)
        context.delivered_before = proof.delivered
        links = NodeLinks(
            parts.delivered_mesh(),
            parts.site,
            parts.book,
            state,
            writer,
            voids,
            quarantine,
            neighbours,
            members,
            partial(setattr, context, "absent"),
            gaps,
            parts.authenticity(),
            parts.holds,
            formats=parts.formats,
            brokers=parts.brokers,
            machine=parts.machine,
        )
        links.watch.ask = packer.canary
        context.clock_differences_ms = links.watch.clock_differences_ms

        def position() -> Place | None:
            return context.position

        housekeeping = Housekeeping(
            state=state,
            writer=writer,
            barrier=context.barrier,
            settled=context.settled,
            export=LedgerExport(state, parts.site, ledger, ledger_writers),
            through=ThroughRows(
                parts.cluster_id, state, writer, context.settlement, packer.through, now_ms
            ),
            position=position,
            mark=DelivererMark(state, writer, position, loaded.positions.get(MARKED)),
            links=links.stages,
            window_ms=parts.window_ms,
            tell_memory=partial(setattr, context, "window_ms"),
            members=members,
            now_ms=now_ms,
        )
        return cls(
            state,
            writer,
            packer,
            context,
            Deliverer(context, connection),
            links,
            housekeeping,
            Mending(context, partial(parts.connect, "mending")),
            Repairing(
                writer,
                voids.is_void,
                packer.repair,
                lambda: packer.batch_format > OLDEST_BATCH_FORMAT,
                lambda: context.mesh.last_lane,
            ),
            proof,
            members,
            gaps,
            now_ms,
        )

    def change(self, parts: NodeParts, *, receives: bool) -> None:
        """Each takes up what is new to it; none waits for another. `receives`: may links into the
        site go on?
        """
        self.packer.change(parts.packer_settings())
        context = self.context
        context.mesh = parts.delivered_mesh()
        context.absent = self.members.absent(parts.mesh)
        context.barrier.set_window(parts.window_ms)
        context.window_ms = context.barrier.memory_ms
        context.hold(parts.held)
        self.housekeeping.window_ms = parts.window_ms
        # Of what is retired too: it may still not cross the sites of its never_via.
        self.links.change(
            parts.delivered_mesh(),
            parts.book,
            parts.authenticity(),
            parts.holds,
            receives=receives,
        )

    async def deliver(self) -> None:
        """The deliverer, until it is to stop. Raises NodeStopped, with a row of the ledger, where
        the log has lost what was not delivered yet.
        """
        try:
            await self.deliverer.run()
        except LogGap as met:
            gap = met.since(self.context.settlement.position(self.writer.safe_position) or START)
            now_ms, settled = self.now_ms(), self.context.settled
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
        """A person has accepted the gap: the link or the flow that stands at it goes on."""
        if gap.link:
            self.links.go_on(gap.link)
        else:
            self.deliverer.go_on(gap.key)

    @property
    def undelivered(self) -> LogLag:
        """What of the log is not settled here."""
        return self.writer.lag(self.context.settlement.position(self.writer.safe_position))


def _pass_gap(gaps: SiteGaps, state: NodeState, loaded: Loaded, now_ms: int) -> None:
    """If a person has accepted the gap at which the deliverer stopped: begin behind it."""
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
