"""Store in a folder, on RocksDB by rocksdict, which only this file imports.

rocksdict holds the interpreter's lock during `write`, a synced one included, which would stop every
coroutine for the length of an fsync (5 ms and more); it releases the lock in `flush_wal`. So writes
never sync by themselves: they go to the write-ahead log in microseconds, in the caller's thread,
and one thread flushes for all waiting callers (group commit). Where the disk is so quick that the
way to that thread and back takes longer, the caller's thread flushes (`SyncPlace`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    ColumnFamily,
    DbClosedError,
    DBCompressionType,
    Options,
    Rdict,
    WriteBatch,
    WriteBufferManager,
)

from dedup.store import Changes, StoreClosed, StoreDamaged, StoreFailed, StoreLocked

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class RocksdbSettings:
    """Limits of a store. The defaults keep a node with one site under 150 MB."""

    block_cache_bytes: int = 8 * _MIB
    """Cache of blocks, indexes and filters. A smaller one costs more reads a lookup when the
    barrier holds many million keys."""
    write_buffer_bytes: int = 12 * _MIB
    """Newest keys of all tables together. Less makes more and smaller files to merge, so
    more CPU."""
    table_buffer_bytes: int = 4 * _MIB
    """Share of one table before a file is written."""
    write_ahead_bytes: int = 48 * _MIB
    """Size of the write-ahead logs at which the oldest table is written out; also bounds the
    reading at start."""
    open_files: int = 64


class SyncPlace:
    """Place of the next sync: at once in the caller's thread while syncs there take less than
    `QUICK_S`, else in a thread of its own, with a trial now and then.
    """

    QUICK_S = 0.001
    STRIKES = 2
    """Number of slow syncs in a row that count: one may be a busy processor's."""
    TRIAL_EVERY = 64

    def __init__(self) -> None:
        self._strikes = 0
        self._elsewhere = 0

    @property
    def is_here(self) -> bool:
        """True if the caller's thread is to sync."""
        return not self._elsewhere

    def took(self, seconds: float) -> None:
        """Note how long a sync in the caller's thread took."""
        self._strikes = self._strikes + 1 if seconds >= self.QUICK_S else 0
        if self._strikes >= self.STRIKES:
            self._elsewhere = self.TRIAL_EVERY
            self._strikes = self.STRIKES - 1

    def went_elsewhere(self) -> None:
        """Note a sync in the other thread."""
        self._elsewhere = max(0, self._elsewhere - 1)


_HOLDS_ANYTHING = (
    "rocksdb.num-entries-active-mem-table",
    "rocksdb.num-entries-imm-mem-tables",
    "rocksdb.live-sst-files-size",
)
"""Properties of a table that are all 0 if nothing was ever written: no rows, and no deletions."""


class RocksdbStore:
    """`Store` in a folder. `point_tables` are read by single keys and get filters."""

    def __init__(
        self,
        folder: Path,
        tables: Sequence[str],
        *,
        point_tables: frozenset[str] = frozenset(),
        settings: RocksdbSettings = RocksdbSettings(),
    ) -> None:
        """Open or make the folder. Raises StoreLocked, StoreDamaged, StoreFailed."""
        self._folder = folder
        self._cache = Cache(settings.block_cache_bytes)
        self._buffers = WriteBufferManager(settings.write_buffer_bytes, False)
        self._settings = settings
        self._point_tables = point_tables
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreFailed(f"make the folder {folder}", str(error)) from error
        self._db = self._open(tables)
        self._tables: dict[str, Rdict] = {}
        self._handles: dict[str, ColumnFamily] = {}
        for table in tables:
            self._attach(table)
        self._failure: StoreFailed | None = None
        self._closed = False
        self._written = 0
        self._on_disk = 0
        self._flusher = ThreadPoolExecutor(1, thread_name_prefix="store-sync")
        self._flushing = False
        self._place = SyncPlace()
        self._waiting: list[asyncio.Future[None]] = []

    def _open(self, tables: Sequence[str]) -> Rdict:
        path = str(self._folder)
        try:
            families = {name: self._options(name) for name in tables}
            if (self._folder / "CURRENT").exists():
                # RocksDB opens only with all existing tables, those of an older version too.
                for name in Rdict.list_cf(path, Options(raw_mode=True)):
                    if name != "default":
                        families.setdefault(name, self._options(name))
            return Rdict(path, self._options("default"), column_families=families)
        except Exception as error:
            # rocksdict raises bare Exceptions, which only their text distinguishes.
            reason = str(error)
            if "LOCK" in reason or "lock" in reason.split(":")[0].lower():
                raise StoreLocked(self._folder, _lock_holder(self._folder / "LOCK")) from error
            if reason.startswith(("Corruption", "Invalid argument", "Not implemented")):
                raise StoreDamaged(self._folder, reason) from error
            raise StoreFailed(f"open {self._folder}", reason) from error

    def _attach(self, table: str) -> None:
        self._tables[table] = self._db.get_column_family(table)
        self._handles[table] = self._db.get_column_family_handle(table)

    def _options(self, table: str) -> Options:
        settings = self._settings
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        options.set_write_buffer_manager(self._buffers)
        options.set_write_buffer_size(settings.table_buffer_bytes)
        options.set_max_write_buffer_number(3)
        options.set_arena_block_size(128 * 1024)
        options.set_max_total_wal_size(settings.write_ahead_bytes)
        options.set_max_background_jobs(2)
        options.set_max_open_files(settings.open_files)
        options.set_max_file_opening_threads(1)
        options.set_keep_log_file_num(2)
        options.set_max_log_file_size(_MIB)
        options.set_stats_dump_period_sec(0)
        options.set_stats_persist_period_sec(0)
        # A write that waits for merging holds the interpreter's lock: let files pile up instead.
        options.set_level_zero_file_num_compaction_trigger(8)
        options.set_level_zero_slowdown_writes_trigger(60)
        options.set_level_zero_stop_writes_trigger(200)
        options.set_level_compaction_dynamic_level_bytes(True)
        options.set_max_bytes_for_level_base(32 * _MIB)
        options.set_target_file_size_base(16 * _MIB)
        blocks = BlockBasedOptions()
        blocks.set_block_cache(self._cache)
        # Indexes and filters of a big barrier are many times the cache: kept in parts, on demand.
        blocks.set_index_type(BlockBasedIndexType.two_level_index_search())
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_pin_top_level_index_and_filter(True)
        blocks.set_format_version(5)
        if table in self._point_tables:
            # Keys and values are hashes: nothing to compress.
            options.set_compression_type(DBCompressionType.none())
            blocks.set_bloom_filter(10, False)
            blocks.set_partition_filters(True)
            options.set_memtable_whole_key_filtering(True)
            options.set_memtable_prefix_bloom_ratio(0.1)
        else:
            options.set_compression_type(DBCompressionType.lz4())
        options.set_block_based_table_factory(blocks)
        return options

    def _check(self) -> None:
        if self._closed:
            raise StoreClosed(f"{self._folder} is closed")
        if self._failure is not None:
            raise self._failure

    def _failed(self, what: str, error: BaseException) -> StoreFailed:
        if isinstance(error, DbClosedError):
            raise StoreClosed(f"{self._folder} is closed") from error
        self._failure = StoreFailed(f"{what} in {self._folder}", str(error))
        return self._failure

    def get(self, table: str, key: bytes) -> bytes | None:
        self._check()
        try:
            value: bytes | None = self._tables[table].get(key)
        except KeyError:
            raise
        except Exception as error:
            raise self._failed("read", error) from error
        return value

    def get_many(self, table: str, keys: list[bytes]) -> list[bytes | None]:
        self._check()
        if not keys:
            return []
        try:
            values: list[bytes | None] = self._tables[table].get(keys)  # type: ignore[assignment, arg-type]
        except KeyError:
            raise
        except Exception as error:
            raise self._failed("read", error) from error
        return values

    def scan(
        self, table: str, begin: bytes = b"", end: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        self._check()
        for key, value in self._tables[table].items(from_key=begin or None):
            assert isinstance(key, bytes)
            if end is not None and key >= end:
                return
            yield key, value

    def write(self, changes: Changes) -> None:
        self._check()
        batch = WriteBatch(raw_mode=True)
        for table, begin, end in changes.ranges:
            batch.delete_range(begin, end, self._handles[table])
        for table, keys in changes.tables.items():
            batch.set_default_column_family(self._handles[table])
            for key, value in keys.items():
                if value is None:
                    del batch[key]
                else:
                    batch[key] = value
        try:
            self._db.write(batch)
        except Exception as error:
            raise self._failed("write", error) from error
        self._written += 1

    def _flush(self) -> None:
        written = self._written
        try:
            self._db.flush_wal(True)
        except Exception as error:
            raise self._failed("sync", error) from error
        self._on_disk = max(self._on_disk, written)

    async def synced(self) -> None:
        self._check()
        if self._on_disk == self._written:
            return
        if self._place.is_here and not self._flushing:
            began = time.perf_counter()
            self._flush()
            self._place.took(time.perf_counter() - began)
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        if not self._flushing:
            self._flush_for_all()
        await done

    async def write_synced(self, changes: Changes) -> None:
        self.write(changes)
        await self.synced()

    def _flush_for_all(self) -> None:
        """Sync once for all present waiters; later ones get the next sync."""
        group, self._waiting = self._waiting, []
        self._flushing = True
        self._place.went_elsewhere()
        loop = asyncio.get_running_loop()
        flushed = loop.run_in_executor(self._flusher, self._flush)

        def finished(result: asyncio.Future[None]) -> None:
            self._flushing = False
            error = result.exception()
            for waiter in group:
                if waiter.done():
                    continue
                if error is None:
                    waiter.set_result(None)
                else:
                    waiter.set_exception(error)
            if self._waiting:
                self._flush_for_all()

        flushed.add_done_callback(finished)

    def clear_table(self, table: str) -> None:
        self._check()
        try:
            if not any(self._tables[table].property_int_value(what) for what in _HOLDS_ANYTHING):
                return  # dropping and making a table takes milliseconds, and copies clear many
            # Files go at once and whole; a killed process finds the table missing or empty,
            # and opening makes a missing one.
            self._handles.pop(table)
            self._tables.pop(table).close()
            self._db.drop_column_family(table)
            self._db.create_column_family(table, self._options(table))
            self._attach(table)
        except Exception as error:
            raise self._failed(f"empty table {table}", error) from error

    def close(self) -> None:
        if self._closed:
            return
        self._flusher.shutdown(wait=True)
        try:
            if self._failure is None:
                self._flush()
        finally:
            self._closed = True
            self._handles.clear()
            for table in self._tables.values():
                table.close()
            self._tables.clear()
            self._db.close()


def _lock_holder(lock: Path) -> int | None:
    """Return the process ID that holds the lock, from the kernel's list. Opening the file itself is
    forbidden: closing would drop a lock that this process holds.
    """
    try:
        stat = lock.stat()
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    place = f"{os.major(stat.st_dev):02x}:{os.minor(stat.st_dev):02x}:{stat.st_ino}"
    for line in lines:
        words = line.split()
        if len(words) >= 6 and words[5] == place and int(words[4]) > 0:
            return int(words[4])
    return None
