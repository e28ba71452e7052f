"""Seam to a node's durable memory: tables of bytes, changed by atomic writes.

One store has one owner process. Twins: `rocksdb_store.RocksdbStore` (a folder) and
`memory_store.MemoryStore` (simulation, with crashes); one contract suite runs over both.

A process crash leaves everything written. A power cut leaves everything synced, and of the rest a
prefix in the order of writing, never a part of one write.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol


class StoreError(Exception):
    """Root of a store's errors.

    StoreError
    +- StoreLocked    another process has the folder
    +- StoreDamaged   the files on disk cannot be read
    +- StoreFailed    a read, write or sync failed; the store takes no more
    +- StoreClosed    used after close(): a mistake of the caller
    """


class StoreLocked(StoreError):
    """Another process has the folder open. `holder` is its process ID, or None if unknown."""

    def __init__(self, folder: Path, holder: int | None) -> None:
        who = "another process" if holder is None else f"process {holder}"
        super().__init__(
            f"{folder} is in use by {who}: end that node first, or give this one a state"
            " folder of its own"
        )
        self.folder = folder
        self.holder = holder


class StoreDamaged(StoreError):
    """The folder's files cannot be read as a store."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(
            f"{folder} is damaged: {reason}; move it away and run `isthmus recover`,"
            " which rebuilds it from the site's log"
        )
        self.folder = folder
        self.reason = reason


class StoreFailed(StoreError):
    """The machine refused. Writes since the last sync are in doubt, so the store takes nothing
    more: stop the node, mend the disk, start again.
    """

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"could not {what}: {reason}; check the disk of the state folder")
        self.what = what
        self.reason = reason


class StoreClosed(StoreError):
    """The store is closed."""


class Changes:
    """Content of one atomic write: ranges are deleted first, then keys are put or deleted.

    The later of two changes of a key counts. Not frozen: built, written once, dropped.
    """

    __slots__ = ("ranges", "tables")

    def __init__(self) -> None:
        self.tables: dict[str, dict[bytes, bytes | None]] = {}
        self.ranges: list[tuple[str, bytes, bytes]] = []

    def __bool__(self) -> bool:
        return bool(self.ranges) or any(self.tables.values())

    def table(self, name: str) -> dict[bytes, bytes | None]:
        """Return key -> new value (None: delete) of one table, for filling many at once."""
        found = self.tables.get(name)
        if found is None:
            found = self.tables[name] = {}
        return found

    def put(self, table: str, key: bytes, value: bytes) -> None:
        self.table(table)[key] = value

    def delete(self, table: str, key: bytes) -> None:
        self.table(table)[key] = None

    def delete_range(self, table: str, begin: bytes, end: bytes) -> None:
        """Delete every key with begin <= key < end, including keys put here before."""
        self.ranges.append((table, begin, end))
        pending = self.tables.get(table)
        if pending:
            for key in [key for key in pending if begin <= key < end]:
                del pending[key]


class Store(Protocol):
    """Durable memory of a node. Keys in a table are ordered as bytes.

    The tables are fixed at opening. Every method except the async ones does its work before it
    returns, in microseconds; none waits for a disk unless documented.
    """

    def get(self, table: str, key: bytes) -> bytes | None: ...

    def get_many(self, table: str, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of many keys, in their order; None for a missing key."""
        ...

    def scan(
        self, table: str, begin: bytes = b"", end: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values with begin <= key < end (None: to the last), in order of the keys.

        Concurrent writes may or may not appear. Drain or drop the iterator soon: it pins memory.
        """
        ...

    def write(self, changes: Changes) -> None:
        """Write to all tables as one atom."""
        ...

    async def synced(self) -> None:
        """Return once all earlier writes are on the disk.

        Many callers share one sync. A cancelled caller knows nothing about the disk.
        """
        ...

    async def write_synced(self, changes: Changes) -> None:
        """Write at once (readable when the call first yields), return when the write is on the
        disk.
        """
        ...

    def clear_table(self, table: str) -> None:
        """Empty a table in O(1), whatever its size, outside any atomic write."""
        ...

    def close(self) -> None:
        """Close; idempotent. What was synced is kept, and perhaps the rest."""
        ...
