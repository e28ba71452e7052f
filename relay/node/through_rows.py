"""Writes down up to where this site has packed and settled: what lets an audit tell a message that
was passed over from one that is on its way.

Never more than is true. Of what was settled, only what stands in the part of the log that was read
back and is in a snapshot: what comes to light before it later on would have been settled too late.
And in a commit after those that settled it: whoever has the row has the rows of all it speaks of.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from relay.batches.batch import Flow
from relay.delivery.settlement import Point, Settlement
from relay.ledger.rows import Event, LedgerRow, Stage
from relay.log.writer import LogWriter
from relay.packing.packer_record import PackedThrough
from relay.state.node_state import Commit, NodeState


class ThroughRows:
    """One site's, for one run of its stages. `packed` is the packer's word."""

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
        """A row for each flow that has moved since its last one, and one of the packer. What the
        log does not show within that time is left to the next call.
        """
        settled = self._settlement.through()
        times_sent_back = self._settlement.times_sent_back
        with contextlib.suppress(TimeoutError):  # `_is_certain` leaves out what was not read back
            async with asyncio.timeout(within_s):
                await self._writer.check_now()
        if times_sent_back != self._settlement.times_sent_back:
            settled = {}  # something new may stand before any of them
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
