"""Journal in memory, for simulation and tests, with the faults of a distant quorum."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from dedup.journal.journal import JournalAway, JournalRow, Owner, Ownership


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
        self.rows: dict[tuple[int, int], bytes] = {}

    def land(self, rows: list[JournalRow]) -> None:
        """Write rows that were on their way."""
        for row in rows:
            kept = self.rows.setdefault((row.number, row.epoch), row.data)
            assert kept == row.data, "a row is written once"


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
            self._rows.ownership = now = Ownership(owner, {} if now is None else now.begins)
        await self._answer()
        return now is not None and now.owner == owner

    async def begin(self, owner: Owner, after: int) -> bool:
        await self._ask()
        now = self._rows.ownership
        is_ours = now is not None and now.owner == owner
        if now is not None and is_ours:
            self._rows.ownership = Ownership(owner, {**now.begins, owner.epoch: after})
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
        for number, epoch in sorted(self._rows.rows):
            if number > after:
                yield JournalRow(number, epoch, self._rows.rows[number, epoch])
