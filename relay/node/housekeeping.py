"""Periodic work of a node beside its stages: marks, idle rows, THROUGH rows, rolling, forgetting.

Every round is independent: a failure in one is logged, counted, and tried again in the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from relay.batches.batch import Flow
from relay.delivery.context import DeliveryContext
from relay.delivery.settlement import Point, Settlement
from relay.ledger.file_writer import ExportFailed
from relay.ledger.members import RevisionMembers
from relay.ledger.rows import Event, LedgerRow, Stage
from relay.ledger_export import LedgerExport
from relay.log.writer import LogWriter
from relay.node.links import NodeLinks
from relay.node.start import DelivererMark
from relay.packing.packer_record import PackedThrough
from relay.state.node_state import Commit, NodeState

log = logging.getLogger(__name__)

MARK_EVERY_S = 10.0
"""Age that the broker's mark may have: after a lost state, everything past the mark is flagged."""
MINUTE_S = 60.0
THROUGH_WITHIN_S = 5.0
"""Time for the log to show what was settled, before that is left to the next minute."""


class Housekeeping:
    """Periodic work of one site. `run` until cancelled."""

    def __init__(
        self,
        *,
        context: DeliveryContext,
        export: LedgerExport,
        through: ThroughRows,
        mark: DelivererMark,
        links: NodeLinks,
        members: RevisionMembers,
        window_ms: int,
    ) -> None:
        self.mark = mark
        self._window_ms = window_ms
        self._context = context
        self._export = export
        self._through = through
        self._links = links
        self._members = members
        self.export_failure = ""
        """Reason why the ledger cannot be written at present; empty while it can."""

    def change(self, window_ms: int) -> None:
        """Keep things for `window_ms` from now on."""
        self._window_ms = window_ms

    async def run(self) -> None:
        """Run all rounds, for ever."""
        async with asyncio.TaskGroup() as rounds:
            rounds.create_task(self._every(MARK_EVERY_S, partial(self.mark.store, MARK_EVERY_S)))
            rounds.create_task(self._every(MINUTE_S, self._minute))

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            await work()

    async def _minute(self) -> None:
        now_ms = self._context.now_ms()
        self._context.barrier.rotate_if_due(now_ms)
        self._context.refresh_window()
        if self._context.log.forget_before(now_ms - self._window_ms):
            self._forget_settled()
        try:
            # Twice the window: a log or a position may name a revision for so long.
            self._members.forget_before(now_ms - 2 * self._window_ms)
        except OSError as error:
            log.error(
                "revisions of the mesh that nobody uses are not forgotten: %s",
                error,
                extra={"event": "revisions-not-forgotten"},
            )
        self._sign_of_life(now_ms)
        await self._through.write(THROUGH_WITHIN_S)
        await self.roll(everything=False)

    def _sign_of_life(self, now_ms: int) -> None:
        """Write a row of each stage: all its earlier rows are written."""
        commit = Commit()
        position = self._context.position
        place = str(position.name) if position else ""
        stages: list[tuple[Stage, str]] = [(Stage.PACKED, ""), (Stage.DELIVERED, "")]
        for stage, neighbour in [*stages, *self._links.stages()]:
            commit.row(
                LedgerRow(
                    stage=stage,
                    recorded_ms=now_ms,
                    event=Event.IDLE,
                    neighbour=neighbour,
                    position=place if stage is Stage.DELIVERED else "",
                )
            )
        self._context.state.write(commit)

    async def close_books(self, through_within_s: float = THROUGH_WITHIN_S) -> None:
        """Write a last row of each stage, and all rows into files, however small. A failure is in
        `export_failure`.
        """
        self._sign_of_life(self._context.now_ms())
        await self._through.write(through_within_s)
        await self.roll(everything=True)

    async def roll(self, *, everything: bool) -> None:
        """Export the ledger's closed ranges; a failure keeps the rows and is reported."""
        try:
            await self._export.roll(self._context.now_ms(), everything=everything)
        except ExportFailed as error:
            self.export_failure = str(error)
            log.error("%s", error, extra={"event": "ledger-export-failed"})
        else:
            self.export_failure = ""

    def _forget_settled(self) -> None:
        """Forget settled names, and deferred messages that were not met again, of incarnations that
        the log has forgotten.
        """
        logged = set(self._context.log.logged.series())
        gone = [series for series in self._context.settled.series() if series not in logged]
        if gone:
            self._context.settled.forget(lambda series: series in gone)
            commit = Commit()
            commit.settled(self._context.settled, gone)
            self._context.state.write(commit)
        for flow, batches in self._context.deferred.items():
            for name in [name for name in batches if name.series not in logged]:
                del batches[name]
                commit = Commit()
                commit.deferred(flow, name, ())
                self._context.state.write(commit)


class ThroughRows:
    """Writes how far this site has packed and settled, for one run of its stages, so that an audit
    can tell a skipped message from one on its way. `packed` returns the packer's position.

    A row never claims too much. A settled position counts only if it lies in the part of the log
    that was read back and is in a snapshot: batches found before it later would have been settled
    too late. The row is in a later commit than what it covers, so a reader of the row has all rows
    up to there.
    """

    def __init__(
        self,
        cluster_id: str,
        state: NodeState,
        writer: LogWriter,
        settlement: Settlement,
        packed: Callable[[], PackedThrough | None],
        now_ms: Callable[[], int],
    ) -> None:
        self._cluster_id = cluster_id
        self._state = state
        self._writer = writer
        self._settlement = settlement
        self._packed = packed
        self._now_ms = now_ms
        self._written: dict[Flow, tuple[bytes, int]] = {}

    async def write(self, within_s: float) -> None:
        """Write a row for each flow that has moved since its last one, and one of the packer. Flows
        that the log does not confirm within `within_s` are left to the next call.
        """
        settled = self._settlement.through()
        times_sent_back = self._settlement.times_sent_back
        with contextlib.suppress(TimeoutError):  # `_is_certain` omits what was not read back
            async with asyncio.timeout(within_s):
                await self._writer.check_now()
        if times_sent_back != self._settlement.times_sent_back:
            settled = {}  # new batches may stand before any of them
        commit = Commit()
        for flow, point in settled.items():
            self._add(commit, flow, point)
        if (packed := self._packed()) is not None:
            commit.row(self._packed_row(packed))
        self._state.write(commit)

    def _add(self, commit: Commit, flow: Flow, point: Point) -> None:
        assert point.place is not None, "a batch that was met stands somewhere"
        incarnation = point.place.name.series.incarnation
        value = incarnation, point.whole
        if value == self._written.get(flow) or not self._is_certain(point):
            return
        self._written[flow] = value
        commit.row(
            LedgerRow(
                Stage.DELIVERED,
                self._now_ms(),
                Event.THROUGH,
                origin=flow.origin,
                exchange=flow.exchange,
                lane=flow.lane,
                incarnation=incarnation,
                incarnation_sequence=point.whole,
            )
        )

    def _is_certain(self, point: Point) -> bool:
        safe = self._writer.safe_position(point.place)
        return safe is not None and point.place is not None and safe.name == point.place.name

    def _packed_row(self, packed: PackedThrough) -> LedgerRow:
        return LedgerRow(
            Stage.PACKED,
            self._now_ms(),
            Event.THROUGH,
            origin=self._cluster_id,
            incarnation=packed.incarnation,
            incarnation_sequence=packed.sequence,
            through_ms=packed.before_ms,
        )
