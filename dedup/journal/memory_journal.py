"""Journal in memory, for simulation and tests, with the faults of a distant quorum."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from dedup.journal.journal import (
    JournalAway,
    JournalRow,
    JournalSnapshot,
    Owner,
    Ownership,
    outlived,
)


async def _at_once() -> None:
    await asyncio.sleep(0)


class JournalTrouble:
    """Trouble of the way to a journal, to be set by tests and simulations."""

    def __init__(self) -> None:
        self.away = False
        """True while no quorum answers, and nothing is done."""
        self.lost_answers = 0
        """Number of next calls that are done, and whose answer never comes."""
        self.late: list[JournalRow] | None = None
        """Rows written while this is a list: without an answer, on their way until `land`."""


class SlotRows:
    """Quorum's side of one slot's journal, which outlives all nodes."""

    def __init__(self) -> None:
        self.ownership: Ownership | None = None
        self.rows: dict[int, dict[int, bytes]] = {}
        """Rows by their number and epoch."""
        self.first = 1
        """Number of the first row that was not deleted."""
        self.last = 0
        """Biggest number of a row."""
        self.parts: dict[tuple[int, int, int], bytes] = {}
        """Parts of snapshots, by row, epoch and number."""
        self.snapshots: list[JournalSnapshot] = []
        """Complete ones, by row."""

    def land(self, rows: list[JournalRow]) -> None:
        """Write rows that were on their way."""
        for row in rows:
            kept = self.rows.setdefault(row.number, {}).setdefault(row.epoch, row.data)
            assert kept == row.data, "a row is written once"
            self.last = max(self.last, row.number)


class MemoryJournal:
    """`Journal` of a node over `rows`. Each step awaits `delay`."""

    def __init__(
        self,
        rows: SlotRows,
        trouble: JournalTrouble | None = None,
        delay: Callable[[], Awaitable[None]] = _at_once,
    ) -> None:
        self._rows = rows
        self.trouble = trouble or JournalTrouble()
        self._delay = delay

    async def _ask(self) -> None:
        await self._delay()
        if self.trouble.away:
            raise JournalAway("no quorum in memory")

    async def _answer(self) -> None:
        await self._delay()
        if self.trouble.lost_answers:
            self.trouble.lost_answers -= 1
            raise JournalAway("the answer is lost")

    async def ownership(self) -> Ownership | None:
        await self._ask()
        found = self._rows.ownership
        await self._answer()
        return found

    async def take(self, before: Ownership | None, owner: Owner) -> bool:
        await self._ask()
        now = self._rows.ownership
        if (now and now.owner) == (before and before.owner):
            begins, journal = ({}, owner.run) if now is None else (now.begins, now.journal)
            self._rows.ownership = now = Ownership(owner, begins, journal)
        await self._answer()
        return now is not None and now.owner == owner

    async def begin(self, owner: Owner, after: int) -> bool:
        await self._ask()
        now = self._rows.ownership
        is_ours = now is not None and now.owner == owner
        if now is not None and is_ours:
            self._rows.ownership = now._replace(begins={**now.begins, owner.epoch: after})
        await self._answer()
        return is_ours

    async def write(self, row: JournalRow) -> None:
        await self._ask()
        if self.trouble.late is not None:
            self.trouble.late.append(row)
            raise JournalAway("the row is on its way")
        self._rows.land([row])
        await self._answer()

    async def rows(self, after: int) -> AsyncIterator[JournalRow]:
        await self._ask()
        if after + 1 < self._rows.first:
            return  # as where the partition of the next row is deleted
        for number in range(after + 1, self._rows.last + 1):
            for epoch, data in sorted(self._rows.rows.get(number, {}).items()):
                yield JournalRow(number, epoch, data)

    async def snapshot(self) -> JournalSnapshot | None:
        await self._ask()
        found = self._rows.snapshots[-1] if self._rows.snapshots else None
        await self._answer()
        return found

    async def part(self, row: int, epoch: int, number: int) -> bytes | None:
        await self._ask()
        found = self._rows.parts.get((row, epoch, number))
        await self._answer()
        return found

    async def write_part(self, row: int, epoch: int, number: int, data: bytes) -> None:
        await self._ask()
        self._rows.parts[row, epoch, number] = data
        await self._answer()

    async def complete(self, snapshot: JournalSnapshot) -> None:
        await self._ask()
        self._rows.snapshots = sorted({*self._rows.snapshots, snapshot})
        await self._answer()

    async def end(self) -> int:
        await self._ask()
        found = max([self._rows.last, *(one.row for one in self._rows.snapshots)])
        await self._answer()
        return found

    async def renew(self, before: Owner, owner: Owner, after: int) -> bool:
        await self._ask()
        now = self._rows.ownership
        if now is not None and now.owner == before:
            self._rows.ownership = now = Ownership(owner, {owner.epoch: after}, owner.run)
        await self._answer()
        return now is not None and now.owner == owner

    async def forget(self, snapshot: JournalSnapshot) -> None:
        await self._ask()
        rows = self._rows
        earlier = [one.row for one in rows.snapshots if one.row < snapshot.row]
        keep = earlier[-1] if earlier else snapshot.row
        rows.snapshots = [one for one in rows.snapshots if one.row >= keep]
        rows.parts = {key: part for key, part in rows.parts.items() if key[0] >= keep}
        for number in range(rows.first, snapshot.replay_from):
            rows.rows.pop(number, None)
        rows.first = max(rows.first, snapshot.replay_from)
        if rows.ownership is not None:
            gone = outlived(rows.ownership.begins, rows.first)
            begins = {e: begin for e, begin in rows.ownership.begins.items() if e not in gone}
            rows.ownership = rows.ownership._replace(begins=begins)
        await self._answer()
