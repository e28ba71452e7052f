"""Taking of a slot: the next epoch, the journal read to its end, the beginning stated there.

A crash at any step leaves an epoch without a beginning, which the next taker passes over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from dedup.journal.journal import (
    Journal,
    JournalAway,
    JournalRow,
    Owner,
    SlotFenced,
    counting_rows,
)
from dedup.journal.journal_row import decode_row
from dedup.journal.journaled_store import apply_row, last_row_of
from dedup.store import Store

T = TypeVar("T")

READ_BYTES = 4 * 1024 * 1024
"""Size of the rows that are read before the ownership is checked and they are applied."""


class SlotTaking:
    """One attempt of a node to take a slot. `run` is random; `retry` is awaited before a call whose
    outcome is unknown is made again, with the number of failures in a row.
    """

    def __init__(
        self, journal: Journal, node: str, run: bytes, retry: Callable[[int], Awaitable[None]]
    ) -> None:
        self._journal = journal
        self._node = node
        self._run = run
        self._retry = retry

    async def raise_epoch(self) -> Owner:
        """Become the owner. From then on no row of the former owner counts any more. Raises
        SlotFenced if another node is quicker.
        """
        before = await self._certain(self._journal.ownership)
        epoch = 1 if before is None else before.owner.epoch + 1
        owner = Owner(epoch, self._run, self._node)
        if not await self._certain(lambda: self._journal.take(before, owner)):
            now = await self._certain(self._journal.ownership)
            raise SlotFenced(epoch, None if now is None else now.owner)
        return owner

    async def read_and_begin(self, owner: Owner, local: Store) -> None:
        """Bring the local store up to the journal's end, and state that the epoch begins there.
        Raises SlotFenced if the slot is another's by now, JournalDamaged.
        """
        await self._certain(lambda: catch_up(self._journal, local, owner))
        if not await self._certain(lambda: self._journal.begin(owner, last_row_of(local))):
            now = await self._certain(self._journal.ownership)
            raise SlotFenced(owner.epoch, None if now is None else now.owner)

    async def _certain(self, call: Callable[[], Awaitable[T]]) -> T:
        failures = 0
        while True:
            try:
                return await call()
            except JournalAway:
                failures += 1
                await self._retry(failures)


async def catch_up(journal: Journal, local: Store, reader: Owner | None = None) -> None:
    """Apply all rows that count, for all that `reader` may know, and that the local store lacks.
    Raises JournalAway, JournalDamaged.
    """
    while True:
        last = last_row_of(local)
        rows = await _next_rows(journal, last)
        ownership = await journal.ownership()
        if ownership is None:
            return
        for row in counting_rows(rows, ownership, last, reader):
            apply_row(local, row.number, decode_row(row.data))
        if last_row_of(local) == last:
            return


async def _next_rows(journal: Journal, last: int) -> list[JournalRow]:
    """Read some rows, and at least all of the next number."""
    rows: list[JournalRow] = []
    size = 0
    async for row in journal.rows(last):
        rows.append(row)
        size += len(row.data)
        if size >= READ_BYTES and row.number > last + 1:
            break
    return rows
