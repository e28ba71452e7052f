"""Taking of a slot: the next epoch, the journal read to its end, the beginning stated there.

A crash at any step leaves an epoch without a beginning, which the next taker passes over.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from dedup.journal.journal import (
    Journal,
    JournalAway,
    JournalDamaged,
    JournalRow,
    JournalSnapshot,
    Owner,
    Ownership,
    SlotFenced,
    SlotReserved,
    counting_rows,
)
from dedup.journal.journal_row import decode_row
from dedup.journal.slot_copy import SlotCopy

log = logging.getLogger(__name__)

T = TypeVar("T")

READ_BYTES = 4 * 1024 * 1024
"""Size of the rows that are read before the ownership is checked and they are applied."""


class SlotTaking:
    """One attempt of a node or a command to take a slot. `run` is random; `retry` is awaited before
    a call whose outcome is unknown is made again, with the number of failures in a row.
    """

    def __init__(
        self,
        journal: Journal,
        node: str,
        run: bytes,
        retry: Callable[[int], Awaitable[None]],
    ) -> None:
        self._journal = journal
        self._node = node
        self._run = run
        self._retry = retry

    async def raise_epoch(self) -> Owner:
        """Become the owner, as a node. From then on no row of the former owner counts any more.
        Raises SlotFenced if another node is quicker, SlotReserved.
        """
        before = await self._certain(self._journal.ownership)
        if before is not None and before.owner.is_command:
            raise SlotReserved(before.owner.node)
        return await self.raise_epoch_after(before)

    async def raise_epoch_after(self, before: Ownership | None) -> Owner:
        """Become the owner, if the ownership is still the one `before`. Raises SlotFenced."""
        epoch = 1 if before is None else before.owner.epoch + 1
        owner = Owner(epoch, self._run, self._node)
        if not await self._certain(lambda: self._journal.take(before, owner)):
            now = await self._certain(self._journal.ownership)
            raise SlotFenced(epoch, None if now is None else now.owner)
        return owner

    async def read_and_begin(self, owner: Owner, copy: SlotCopy) -> None:
        """Bring the copy up to the journal's end, and state that the epoch begins there. Raises
        SlotFenced if the slot is another's by now, JournalDamaged, JournalTooNew.
        """
        await self._certain(lambda: catch_up(self._journal, copy, owner))
        has_begun = await self._certain(lambda: self._journal.begin(owner, copy.last_row))
        if not has_begun:
            now = await self._certain(self._journal.ownership)
            raise SlotFenced(owner.epoch, None if now is None else now.owner)

    async def renew(self, before: Owner, copy: SlotCopy) -> Owner:
        """Put an empty journal in the place of the one that the owner `before` has, whatever is
        left of that, and own it; the copy is then of the new one. Raises SlotFenced.
        """
        # What is left, and what lands late, is of other epochs or no later row: it never counts.
        after = await self._certain(self._journal.end)
        owner = Owner(before.epoch + 1, self._run, self._node)
        if not await self._certain(lambda: self._journal.renew(before, owner, after)):
            now = await self._certain(self._journal.ownership)
            raise SlotFenced(owner.epoch, None if now is None else now.owner)
        copy.empty(owner.run, after)
        parts = list(copy.parts())
        for number, part in enumerate(parts):
            await self._certain(partial(self._journal.write_part, after, owner.epoch, number, part))
        # From which copies begin: behind what is left.
        empty = JournalSnapshot(after, owner.epoch, after + 1, len(parts))
        await self._certain(lambda: self._journal.complete(empty))
        return owner

    async def _certain(self, call: Callable[[], Awaitable[T]]) -> T:
        return await until_known(call, self._retry)


async def until_known(
    call: Callable[[], Awaitable[T]], retry: Callable[[int], Awaitable[None]]
) -> T:
    """Return the answer of the journal to a call, however often it has to be made. `retry` is that
    of SlotTaking.
    """
    failures = 0
    while True:
        try:
            return await call()
        except JournalAway:
            failures += 1
            await retry(failures)


async def catch_up(
    journal: Journal, copy: SlotCopy, reader: Owner | None = None, *, is_behind: bool = True
) -> None:
    """Apply all rows that count, for all that `reader` may know, and that the copy lacks. A copy of
    another journal begins anew. Where rows that the copy lacks may be deleted, `is_behind`, it
    begins anew from a snapshot if they are. Raises JournalAway, JournalDamaged, JournalTooNew.
    """
    snapshot = await journal.snapshot() if is_behind else None
    while True:
        last = copy.last_row
        if snapshot is not None and last + 1 < snapshot.replay_from:
            if not await _restored(journal, copy, snapshot):
                snapshot = await _later(journal, snapshot)
            continue
        rows = await _next_rows(journal, last)
        ownership = await journal.ownership()
        if ownership is None:
            return
        if copy.journal != ownership.journal:
            # Made anew, with other rows of the same numbers; or the copy is new.
            copy.empty(ownership.journal)
            snapshot = await journal.snapshot()
            continue
        if rows and rows[0].number > last + 1:
            if reader is None and await journal.snapshot() in (None, snapshot):
                return  # read while rows were written, of which a replica lacked one
            snapshot = await _later(journal, snapshot)
            continue
        for row in counting_rows(rows, ownership, last, reader):
            copy.apply(row.number, decode_row(row.data))
        if copy.last_row > last:
            continue
        # No rows are the journal's end, or were deleted while this read: a later snapshot says so,
        # which was complete before the first of them went.
        later = await journal.snapshot() if is_behind else None
        if later is None or later.replay_from <= last + 1:
            return
        snapshot = later


async def _later(journal: Journal, known: JournalSnapshot | None) -> JournalSnapshot:
    """Return the snapshot for which rows or parts were deleted meanwhile. Raises JournalDamaged."""
    found = await journal.snapshot()
    if found is None or found == known:
        raise JournalDamaged(
            f"rows or parts of the journal are missing, and no snapshot behind {known} is there"
        )
    return found


async def _restored(journal: Journal, copy: SlotCopy, snapshot: JournalSnapshot) -> bool:
    """Begin a copy anew from a snapshot. Return False if rows or parts of it are gone: then there
    is a later one.
    """
    log.info(
        "the copy begins anew from the snapshot of row %d",
        snapshot.row,
        extra={"event": "copy-begun-anew"},
    )
    ownership = await journal.ownership()
    if ownership is None:
        return False
    copy.empty(ownership.journal)
    last = snapshot.replay_from - 1
    while last < snapshot.row:
        rows = await _next_rows(journal, last)
        ownership = await journal.ownership()
        if ownership is None:
            return False
        before = last
        for row in counting_rows(rows, ownership.at(snapshot.epoch), last, None):
            last = row.number
            if last <= snapshot.row:
                copy.replay(decode_row(row.data))
        if last == before:
            return False
    for number in range(snapshot.parts):
        part = await journal.part(snapshot.row, snapshot.epoch, number)
        if part is None:
            return False
        copy.store.write(decode_row(part))
    return True


async def _next_rows(journal: Journal, last: int) -> list[JournalRow]:
    """Read some rows, and at least all of the first number that is there."""
    rows: list[JournalRow] = []
    size = 0
    async for row in journal.rows(last):
        rows.append(row)
        size += len(row.data)
        if size >= READ_BYTES and row.number > rows[0].number:
            break
    return rows
