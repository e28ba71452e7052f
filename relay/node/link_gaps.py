"""The gaps at which links out of a site stand: told, and passed once a person has accepted them."""

from __future__ import annotations

from federation.mesh import Link
from relay.ledger.rows import Stage
from relay.links.sender.task import LinkSenderTask
from relay.links.transport.connection import Clock
from relay.log.open_gap import OpenGap, gap_row, just_before
from relay.log.reader import LogGap
from relay.log.writer import LogWriter
from relay.node.bindings import StateLinkMemory
from relay.operator.gaps import SiteGaps
from relay.state.node_state import Commit, NodeState


class LinkGaps:
    """Those of all links that begin at one site."""

    def __init__(self, gaps: SiteGaps, writer: LogWriter, state: NodeState, clock: Clock) -> None:
        self._gaps = gaps
        self._writer = writer
        self._state = state
        self._clock = clock

    def found(self, link: Link, task: LinkSenderTask, met: LogGap) -> None:
        """The link has come to a gap, and stops."""
        gap = met.since(task.done_to)  # what is on its way may get lost as well
        now_ms = self._clock.wall_ms()
        commit = Commit()
        commit.row(gap_row(gap, Stage.LINKED_OUT, now_ms, neighbour=link.receiver))
        self._state.write(commit)
        self._gaps.found(
            OpenGap.of(
                gap,
                Stage.LINKED_OUT,
                now_ms,
                self._writer.names_lately(),
                lambda name: not task.machine.receiver_has(name),
                link=link.name,
                neighbour=link.receiver,
            )
        )

    def pass_accepted(self, link: Link, memory: StateLinkMemory) -> None:
        """If a person has accepted the gap at which the link stopped: it begins behind it."""
        accepted = self._gaps.accepted(f"link {link.name}")
        if accepted is None:
            return
        gap, kept = accepted.gap, memory.load()
        row = gap.accepted_row(accepted.by, accepted.at, self._clock.wall_ms())
        place = just_before(gap.first)
        if kept is None:
            memory.begin(gap.first, row)
        elif kept.place is None or kept.place.offset < place.offset:
            memory.go_on(kept.behind(place, self._clock.now()), row)
        self._gaps.passed(accepted)
