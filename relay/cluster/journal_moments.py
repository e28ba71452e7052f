"""Journal whose steps are named moments, at which tests let a node die or freeze."""

from __future__ import annotations

from collections.abc import AsyncIterator

from dedup.journal.journal import Journal, JournalRow, JournalSnapshot, Owner, Ownership
from relay import crash_points


class JournalMoments:
    """`Journal` over another one."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def ownership(self) -> Ownership | None:
        return await self._journal.ownership()

    async def take(self, before: Ownership | None, owner: Owner) -> bool:
        is_taken = await self._journal.take(before, owner)
        crash_points.reach("turn.raised")
        return is_taken

    async def begin(self, owner: Owner, after: int) -> bool:
        has_begun = await self._journal.begin(owner, after)
        crash_points.reach("turn.begun")
        return has_begun

    async def write(self, row: JournalRow) -> None:
        crash_points.reach("journal.writing")
        await self._journal.write(row)
        crash_points.reach("journal.written")

    def rows(self, after: int) -> AsyncIterator[JournalRow]:
        return self._journal.rows(after)

    async def snapshot(self) -> JournalSnapshot | None:
        return await self._journal.snapshot()

    async def part(self, row: int, epoch: int, number: int) -> bytes | None:
        crash_points.reach("snapshot.reading")
        return await self._journal.part(row, epoch, number)

    async def write_part(self, row: int, epoch: int, number: int, data: bytes) -> None:
        crash_points.reach("snapshot.writing")
        await self._journal.write_part(row, epoch, number, data)

    async def complete(self, snapshot: JournalSnapshot) -> None:
        await self._journal.complete(snapshot)
        crash_points.reach("snapshot.complete")

    async def end(self) -> int:
        return await self._journal.end()

    async def renew(self, before: Owner, owner: Owner, after: int) -> bool:
        return await self._journal.renew(before, owner, after)

    async def forget(self, snapshot: JournalSnapshot) -> None:
        await self._journal.forget(snapshot)
        crash_points.reach("snapshot.forgot")
