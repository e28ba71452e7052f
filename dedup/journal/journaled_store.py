"""Store of a slot whose disk is the journal.

A write is readable at once, and on the disk, as `synced` has it, once it is in a row of the journal
that counts. The local store gets whole rows, and only such ones: it is a copy of the journal up to
one row at any time, at the owner as at any other node. So a node that loses its slot has nothing to
take back, and after any crash the local store needs only the rows behind its own.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterator, Sequence

from dedup.journal.journal import Journal, Owner
from dedup.journal.journal_writer import JournalWriter
from dedup.journal.slot_copy import SlotCopy
from dedup.store import Changes, StoreClosed, StoreError


class JournaledStore:
    """Store of the slot's owner over a copy that has the whole journal. `retry` is
    `JournalWriter`'s.
    """

    def __init__(
        self,
        copy: SlotCopy,
        journal: Journal,
        owner: Owner,
        retry: Callable[[int], Awaitable[None]],
    ) -> None:
        self.copy = copy
        self._local = copy.store
        self._tables = frozenset(copy.tables)
        self.journal = JournalWriter(journal, owner, copy.last_row, copy.apply, self._fail, retry)
        """Writer of the journal, for reports."""
        self._error: StoreError | None = None
        self._failed = asyncio.Event()
        self._closed = False

    def _fail(self, error: StoreError) -> None:
        self._error = error
        self._failed.set()

    async def until_failed(self) -> None:
        """Wait until the journal can be written no more. Raises the reason."""
        await self._failed.wait()
        assert self._error is not None
        raise self._error

    def _check(self, *tables: str) -> None:
        if self._closed:
            raise StoreClosed("the journaled store is closed")
        if self._error is not None:
            raise self._error
        for table in tables:
            if table not in self._tables:
                raise KeyError(table)

    def get(self, table: str, key: bytes) -> bytes | None:
        return self.get_many(table, [key])[0]

    def get_many(self, table: str, keys: list[bytes]) -> list[bytes | None]:
        self._check(table)
        waiting = self.journal.waiting
        if not waiting:
            return self._local.get_many(table, keys)
        found: dict[bytes, bytes | None] = {}
        open_keys: Sequence[bytes] = keys
        for writes in reversed(waiting):
            values = writes.tables.get(table)
            if values:
                for key in values.keys() & open_keys:
                    found[key] = values[key]
            if table in writes.cleared or writes.ranges:
                found.update(
                    (key, None)
                    for key in open_keys
                    if key not in found and writes.hides(table, key)
                )
            if found:
                open_keys = [key for key in open_keys if key not in found]
        if not found:
            return self._local.get_many(table, keys)
        found.update(zip(open_keys, self._local.get_many(table, list(open_keys)), strict=True))
        return [found[key] for key in keys]

    def scan(
        self, table: str, begin: bytes = b"", end: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        self._check(table)
        newer: dict[bytes, bytes | None] = {}
        waiting = list(self.journal.waiting)
        for writes in waiting:
            for key in [key for key in newer if writes.hides(table, key)]:
                newer[key] = None
            newer.update(
                (key, value)
                for key, value in writes.tables.get(table, {}).items()
                if key >= begin and (end is None or key < end)
            )
        older = (
            (key, value)
            for key, value in self._local.scan(table, begin, end)
            if key not in newer and not any(writes.hides(table, key) for writes in waiting)
        )
        put = [(key, value) for key, value in sorted(newer.items()) if value is not None]
        yield from heapq.merge(older, put)

    def write(self, changes: Changes) -> None:
        self._check(*changes.tables, *(table for table, _, _ in changes.ranges))
        self.journal.add(changes)

    async def synced(self) -> None:
        self._check()
        await self.journal.written()

    async def write_synced(self, changes: Changes) -> None:
        self.write(changes)
        await self.synced()

    def clear_table(self, table: str) -> None:
        self._check(table)
        self.journal.clear(table)

    async def release(self) -> None:
        """Stop writing the journal; what is in no row that counts is given up."""
        await self.journal.stop()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._local.close()
