"""Copy of a slot's state in a node's local store, up to one row of the journal."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from dedup.journal.journal_row import Writes, encode_row
from dedup.store import Changes, Store

COPY = "journal"
"""Table of a local store that names the row up to which the store has the journal."""
PART_BYTES = 256 * 1024
"""Size of a part of a snapshot, about."""
_LAST_ROW = b"last row"
_JOURNAL = b"journal"
_EMPTIED = b"emptied "


class SlotCopy:
    """Copy in `store`, which has COPY and `tables`. `replayed` are those of the tables that are big
    and emptied now and then: a snapshot leaves them out, and a new copy has them from the rows
    since they were emptied.
    """

    def __init__(self, store: Store, tables: Sequence[str], replayed: Collection[str] = ()) -> None:
        self.store = store
        self.tables = tuple(tables)
        self.replayed = frozenset(replayed)

    @property
    def last_row(self) -> int:
        """Number of the row up to which the copy has the journal; 0 if the copy is empty."""
        kept = self.store.get(COPY, _LAST_ROW)
        return 0 if kept is None else int.from_bytes(kept)

    @property
    def journal(self) -> bytes:
        """ID of the journal that this is a copy of; empty for a copy of none."""
        return self.store.get(COPY, _JOURNAL) or b""

    @property
    def replay_from(self) -> int:
        """Number of the first row that a new copy needs for the replayed tables."""
        emptied = (self.store.get(COPY, _EMPTIED + table.encode()) for table in self.replayed)
        return min(
            (1 if row is None else int.from_bytes(row) for row in emptied), default=self.last_row
        )

    def apply(self, number: int, writes: Writes) -> None:
        """Apply a row that counts, once the copy has all rows before."""
        # Emptying is outside the atomic write: a crash in between has the row applied again, whole.
        for table in writes.cleared:
            self.store.clear_table(table)
            writes.put(COPY, _EMPTIED + table.encode(), number.to_bytes(8))
        writes.put(COPY, _LAST_ROW, number.to_bytes(8))
        self.store.write(writes)

    def replay(self, writes: Writes) -> None:
        """Apply what a row has for the replayed tables."""
        only = Changes()
        for table in writes.cleared & self.replayed:
            self.store.clear_table(table)
        only.ranges = [cut for cut in writes.ranges if cut[0] in self.replayed]
        only.tables = {
            table: keys for table, keys in writes.tables.items() if table in self.replayed
        }
        self.store.write(only)

    def empty(self, journal: bytes, after: int = 0) -> None:
        """Forget everything; the copy is then a new one of the journal with this ID, which begins
        behind row `after`.
        """
        for table in (COPY, *self.tables):
            self.store.clear_table(table)
        changes = Changes()
        changes.put(COPY, _JOURNAL, journal)
        changes.put(COPY, _LAST_ROW, after.to_bytes(8))
        self.store.write(changes)

    def parts(self) -> Iterator[bytes]:
        """Yield the parts of a snapshot, each the bytes of a row. They may have some of what is
        applied meanwhile: a new copy applies that once more, as it needs all rows behind the number
        that the copy has as this begins. The last part has that number: without it a copy is empty.
        """
        last = Writes()
        last.put(COPY, _LAST_ROW, self.last_row.to_bytes(8))
        for key, value in self.store.scan(COPY, _EMPTIED, _EMPTIED + b"\xff"):
            last.put(COPY, key, value)
        part = Writes()
        for table in self.tables:
            if table in self.replayed:
                continue
            for key, value in self.store.scan(table):
                if part.size >= PART_BYTES:
                    yield encode_row(part)
                    part = Writes()
                part.put(table, key, value)
                part.size += len(key) + len(value)
        yield encode_row(part)
        yield encode_row(last)
