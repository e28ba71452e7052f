"""The stages of one run of a node: wired to each other, and changed with the mesh."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from federation.mesh import OLDEST_BATCH_FORMAT
from relay.aside.mending import Mending
from relay.batches.batch import Predecessor
from relay.batches.incarnation import VoidTable
from relay.delivery.context import DeliveryContext
from relay.delivery.deliverer import Deliverer
from relay.ledger.export import LedgerExport
from relay.ledger.file_writer import FileWriters
from relay.ledger.members import RevisionMembers
from relay.ledger.proof import LedgerProof
from relay.ledger.rows import Stage
from relay.links.neighbour_logs import NeighbourLogs
from relay.log.gap import gap_reason, gap_row
from relay.log.knowledge import LogLag
from relay.log.reader import LogGap
from relay.log.writer import LogWriter
from relay.node.housekeeping import Housekeeping
from relay.node.links import NodeLinks
from relay.node.parts import NodeParts
from relay.node.start import NodeStopped
from relay.node.through_rows import ThroughRows
from relay.packing.packer_loop import PackerLoop
from relay.repair.repairing import Repairing
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
    now_ms: Callable[[], int]

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
    ) -> Stages:
        """`quarantine` is told of what came over a link and is no batch, and why."""
        voids = VoidTable(
            (void.origin, Predecessor(incarnation, void.end))
            for incarnation, void in loaded.voids.items()
        )
        neighbours = NeighbourLogs()
        now_ms = parts.machine.clock.wall_ms
        packer = parts.packer(state, writer, voids, neighbours)
        context, connection = parts.context(state, loaded, writer, voids)
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
            parts.holds,
            formats=parts.formats,
            brokers=parts.brokers,
            machine=parts.machine,
        )
        housekeeping = Housekeeping(
            state=state,
            writer=writer,
            barrier=context.barrier,
            settled=context.settled,
            export=LedgerExport(state, parts.site, ledger, ledger_writers),
            through=ThroughRows(
                parts.cluster_id, state, writer, context.settlement, packer.through, now_ms
            ),
            position=lambda: context.position,
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
            Deliverer(context, connection, loaded.flows),
            links,
            housekeeping,
            Mending(context, partial(parts.connect, "mending")),
            Repairing(
                writer,
                voids.is_void,
                packer.repair,
                lambda: packer.batch_format > OLDEST_BATCH_FORMAT,
            ),
            proof,
            members,
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
        self.links.change(parts.delivered_mesh(), parts.book, parts.holds, receives=receives)

    async def deliver(self) -> None:
        """The deliverer, until it is to stop. Raises NodeStopped, with a row of the ledger, where
        the log has lost what was not delivered yet.
        """
        try:
            await self.deliverer.run()
        except LogGap as gap:
            commit = Commit()
            commit.row(gap_row(gap, Stage.DELIVERED, self.now_ms()))
            self.state.write(commit)
            # The next that happens to this folder is that a person puts it aside.
            await self.housekeeping.roll(everything=True)
            raise NodeStopped(gap_reason(gap)) from gap

    @property
    def undelivered(self) -> LogLag:
        """What of the log is not settled here."""
        return self.writer.lag(self.context.settlement.position(self.writer.safe_position))
