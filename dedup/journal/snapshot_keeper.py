"""Snapshots of a slot, which its owner writes so that earlier rows of the journal can go.

A snapshot is right for ever, whoever wrote it and whenever it lands: an owner's copy has only rows
that count. So a paused owner that wakes does no harm here either.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from dedup.journal.journal import Journal, JournalAway, JournalSnapshot
from dedup.journal.slot_copy import SlotCopy

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SnapshotPace:
    """Times between snapshots. One is due after `rows` rows, or once a replayed table needs fewer
    rows than at the last; `look_s` is the time (s) between two looks.
    """

    rows: int = 100_000
    look_s: float = 60.0


USUAL_PACE = SnapshotPace()


class SnapshotKeeper:
    """Writer of the snapshots of the owner of `epoch`. `retry` is awaited before a call is made
    again, with the number of failures in a row.
    """

    def __init__(
        self,
        journal: Journal,
        copy: SlotCopy,
        epoch: int,
        pace: SnapshotPace,
        retry: Callable[[int], Awaitable[None]],
    ) -> None:
        self._journal = journal
        self._copy = copy
        self._epoch = epoch
        self._pace = pace
        self._retry = retry
        self._is_tidy = False
        """True once all is deleted that the last snapshot has replaced."""

    async def run(self) -> None:
        """Write each snapshot that is due, for ever. Raises JournalRefused, StoreError."""
        failures = 0
        while True:
            try:
                await self.look()
                failures = 0
                await asyncio.sleep(self._pace.look_s)
            except JournalAway:
                failures += 1
                await self._retry(failures)

    async def look(self) -> None:
        """Write a snapshot if one is due. Raises JournalAway: then the next look does the rest."""
        last = await self._journal.snapshot()
        if not self._is_due(last):
            if last is not None and not self._is_tidy:
                await self._journal.forget(last)
                self._is_tidy = True
            return
        row, replay_from, parts = self._copy.last_row, self._copy.replay_from, 0
        for data in self._copy.parts():
            await self._journal.write_part(row, self._epoch, parts, data)
            parts += 1
        made = JournalSnapshot(row, self._epoch, replay_from, parts)
        self._is_tidy = False
        await self._journal.complete(made)
        log.info(
            "snapshot of row %d in %d parts; rows before %d go",
            row,
            parts,
            replay_from,
            extra={"event": "snapshot-made"},
        )
        await self._journal.forget(made)
        self._is_tidy = True

    def _is_due(self, last: JournalSnapshot | None) -> bool:
        row, replay_from = (0, 1) if last is None else (last.row, last.replay_from)
        if self._copy.last_row - row >= self._pace.rows:
            return True
        return bool(self._copy.replayed) and self._copy.replay_from > replay_from
