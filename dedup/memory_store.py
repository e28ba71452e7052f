"""Store in memory, for simulation and tests, with crashes of both kinds.

`crash` returns the store of the next process; the old object is dead from then on, like its
process.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence

from dedup.store import Changes, StoreClosed, StoreFailed

_Tables = dict[str, dict[bytes, bytes]]


class MemoryStore:
    """`Store` without a disk. Each sync awaits `sync_time`, the virtual time of a disk. `on_write`
    is called before and after each write: a crash may come at either moment.
    """

    def __init__(
        self,
        tables: Sequence[str],
        *,
        sync_time: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._tables: _Tables = {table: {} for table in tables}
        self._on_disk: _Tables = {table: {} for table in tables}
        self._unsynced: list[Changes] = []
        self._first_unsynced = 0
        self._sync_time = sync_time
        self._closed = False
        self._failure: StoreFailed | None = None
        self.on_write: Callable[[], None] = lambda: None

    def _check(self) -> None:
        if self._closed:
            raise StoreClosed("the memory store is closed")
        if self._failure is not None:
            raise self._failure

    def get(self, table: str, key: bytes) -> bytes | None:
        self._check()
        return self._tables[table].get(key)

    def get_many(self, table: str, keys: list[bytes]) -> list[bytes | None]:
        self._check()
        get = self._tables[table].get
        return [get(key) for key in keys]

    def scan(
        self, table: str, begin: bytes = b"", end: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        self._check()
        content = self._tables[table]
        for key in sorted(content):
            if key >= begin and (end is None or key < end) and key in content:
                yield key, content[key]

    def write(self, changes: Changes) -> None:
        self._check()
        self.on_write()
        self._check()
        kept = copy.copy(changes)
        kept.tables = {table: dict(keys) for table, keys in changes.tables.items()}
        kept.ranges = list(changes.ranges)
        _apply(kept, self._tables)
        self._unsynced.append(kept)
        self.on_write()
        self._check()

    def _end(self) -> int:
        return self._first_unsynced + len(self._unsynced)

    def _sync_up_to(self, end: int) -> None:
        count = max(0, end - self._first_unsynced)
        for changes in self._unsynced[:count]:
            _apply(changes, self._on_disk)
        del self._unsynced[:count]
        self._first_unsynced += count

    async def synced(self) -> None:
        self._check()
        end = self._end()
        if self._sync_time is not None and end > self._first_unsynced:
            await self._sync_time()
            self._check()
        self._sync_up_to(end)

    async def write_synced(self, changes: Changes) -> None:
        self.write(changes)
        await self.synced()

    def clear_table(self, table: str) -> None:
        self._check()
        self._tables[table].clear()
        self._on_disk[table].clear()
        for changes in self._unsynced:
            changes.tables.pop(table, None)
            changes.ranges = [cut for cut in changes.ranges if cut[0] != table]

    def close(self) -> None:
        if not self._closed and self._failure is None:
            self._sync_up_to(self._end())
        self._closed = True

    def reopen(self) -> MemoryStore:
        """Return the store of the next process after `close`."""
        return self._copy(self._on_disk)

    def crash(self) -> MemoryStore:
        """Return the store of the next process after a kill: all writes are there."""
        self._closed = True
        return self._copy(self._tables)

    def power_cut(self, chance: random.Random | None = None) -> MemoryStore:
        """Return the store after a power cut: synced writes are there, and a random prefix of the
        rest (none without `chance`).
        """
        self._closed = True
        found = self._copy(self._on_disk)
        survivors = chance.randint(0, len(self._unsynced)) if chance is not None else 0
        for changes in self._unsynced[:survivors]:
            _apply(changes, found._tables)
            _apply(changes, found._on_disk)
        return found

    def fail(self, reason: str) -> None:
        """Make every later use fail, like a broken disk."""
        self._failure = StoreFailed("use the memory store", reason)

    def _copy(self, tables: _Tables) -> MemoryStore:
        other = MemoryStore(tuple(tables), sync_time=self._sync_time)
        other._tables = {table: dict(keys) for table, keys in tables.items()}
        other._on_disk = {table: dict(keys) for table, keys in tables.items()}
        return other


def _apply(changes: Changes, tables: _Tables) -> None:
    """Apply all changes, or none: an unknown table raises KeyError first."""
    for table in [*changes.tables, *(cut[0] for cut in changes.ranges)]:
        if table not in tables:
            raise KeyError(table)
    for table, begin, end in changes.ranges:
        content = tables[table]
        for key in [key for key in content if begin <= key < end]:
            del content[key]
    for table, keys in changes.tables.items():
        content = tables[table]
        for key, value in keys.items():
            if value is None:
                content.pop(key, None)
            else:
                content[key] = value
