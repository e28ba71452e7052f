"""What a node does now and then beside its stages: marks, idle rows, rolling, forgetting.

Every round is independent: a failure of one is said, counted, and tried again in the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from dedup.barrier import Barrier
from relay.batches.batch import Place
from relay.batches.name_set import NameSet
from relay.ledger.file_writer import ExportFailed
from relay.ledger.members import RevisionMembers
from relay.ledger.rows import Event, LedgerRow, Stage
from relay.ledger_files.export import LedgerExport
from relay.log.writer import LogWriter
from relay.node.deliverer_mark import DelivererMark
from relay.node.through_rows import ThroughRows
from relay.state.node_state import Commit, NodeState

log = logging.getLogger(__name__)

MARK_EVERY_S = 10.0
"""How far behind the broker's mark may be: after a lost state, what lies past it is flagged."""
MINUTE_S = 60.0
THROUGH_WITHIN_S = 5.0
"""How long the log may take to show what was settled, until that is left to the next minute."""


class Housekeeping:
    """One site's. `run` until cancelled."""

    def __init__(
        self,
        *,
        state: NodeState,
        writer: LogWriter,
        barrier: Barrier,
        settled: NameSet,
        export: LedgerExport,
        through: ThroughRows,
        position: Callable[[], Place | None],
        mark: DelivererMark,
        links: Callable[[], Iterable[tuple[Stage, str]]],
        window_ms: int,
        tell_memory: Callable[[int], None],
        members: RevisionMembers,
        now_ms: Callable[[], int],
    ) -> None:
        """`position`: what the deliverer has stored. `links`: (stage, neighbour) of each link.
        `tell_memory` is told how far back the barrier remembers, in ms.
        """
        self.window_ms = window_ms
        """How long things are kept; may change."""
        self._state = state
        self._writer = writer
        self._barrier = barrier
        self._settled = settled
        self._export = export
        self._through = through
        self._position = position
        self.mark = mark
        self._links = links
        self._tell_memory = tell_memory
        self._members = members
        self._now_ms = now_ms
        self.export_failure = ""
        """Why the ledger cannot be written at present; empty when it can."""

    async def run(self) -> None:
        """All rounds, for ever."""
        async with asyncio.TaskGroup() as rounds:
            rounds.create_task(self._every(MARK_EVERY_S, partial(self.mark.store, MARK_EVERY_S)))
            rounds.create_task(self._every(MINUTE_S, self._minute))

    async def _every(self, seconds: float, what: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            await what()

    async def _minute(self) -> None:
        now_ms = self._now_ms()
        self._barrier.rotate_if_due(now_ms)
        self._tell_memory(self._barrier.memory_ms)
        if self._writer.forget_before(now_ms - self.window_ms):
            self._forget_settled()
        try:
            # Twice the window: it is asked for as long as a log or a position may speak of it.
            self._members.forget_before(now_ms - 2 * self.window_ms)
        except OSError as error:
            log.error("revisions of the mesh that nobody uses are not forgotten: %s", error)
        self._sign_of_life(now_ms)
        await self._through.write(THROUGH_WITHIN_S)
        await self.roll(everything=False)

    def _sign_of_life(self, now_ms: int) -> None:
        """A row of each stage: up to now it has told all that there is."""
        commit = Commit()
        position = self._position()
        place = str(position.name) if position else ""
        stages: list[tuple[Stage, str]] = [(Stage.PACKED, ""), (Stage.DELIVERED, "")]
        for stage, neighbour in [*stages, *self._links()]:
            commit.row(
                LedgerRow(
                    stage=stage,
                    recorded_ms=now_ms,
                    event=Event.IDLE,
                    neighbour=neighbour,
                    position=place if stage is Stage.DELIVERED else "",
                )
            )
        self._state.write(commit)

    async def tell_all(self) -> None:
        """For who is about to audit: every stage tells how far it is, and all of it goes into
        files, as small as these may be. A failure is in `export_failure`.
        """
        await self.close_books(THROUGH_WITHIN_S)

    async def close_books(self, through_within_s: float) -> None:
        """The ledger's last rows, and all of it into files."""
        self._sign_of_life(self._now_ms())
        await self._through.write(through_within_s)
        await self.roll(everything=True)

    async def roll(self, *, everything: bool) -> None:
        """Export the ledger's closed ranges; a failure keeps the rows and is shown."""
        try:
            await self._export.roll(self._now_ms(), everything=everything)
        except ExportFailed as error:
            self.export_failure = str(error)
            log.error("%s", error)
        else:
            self.export_failure = ""

    def _forget_settled(self) -> None:
        """Incarnations that the log has forgotten are forgotten here too."""
        logged = set(self._writer.logged.series())
        gone = [series for series in self._settled.series() if series not in logged]
        if gone:
            self._settled.forget(lambda series: series in gone)
            commit = Commit()
            commit.settled(self._settled, gone)
            self._state.write(commit)
