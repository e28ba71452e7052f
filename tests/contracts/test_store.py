"""Contract of stores, run over a folder, memory, and a journal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from dedup.journal.journal import Owner, Ownership
from dedup.journal.journaled_store import JournaledStore
from dedup.journal.memory_journal import MemoryJournal, SlotRows
from dedup.journal.slot_copy import COPY, SlotCopy
from dedup.memory_store import MemoryStore
from dedup.rocksdb_store import RocksdbStore
from dedup.store import Changes, Store, StoreClosed

TABLES = ("seen", "rows")
OWNER = Owner(1, b"run", "paris-a")
Reopen = Callable[[Store], Awaitable[Store]]


async def at_once(failures: int) -> None:
    """Try again without a wait."""


@pytest.fixture(params=["rocksdb", "memory", "journaled"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def opened(kind: str, tmp_path: Path) -> Iterator[tuple[Store, Reopen]]:
    """A new store, and a way to close it and open it again."""
    stores: list[Store] = []

    rows = SlotRows()
    rows.ownership = Ownership(OWNER, {OWNER.epoch: 0}, b"a journal")

    def open_folder() -> Store:
        tables = (*TABLES, COPY)
        store: Store = RocksdbStore(tmp_path / "state", tables, point_tables=frozenset({"seen"}))
        if kind == "journaled":
            store = JournaledStore(SlotCopy(store, TABLES), MemoryJournal(rows), OWNER, at_once)
        stores.append(store)
        return store

    async def again(store: Store) -> Store:
        await store.synced()
        store.close()
        if isinstance(store, MemoryStore):
            return store.reopen()
        return open_folder()

    yield (MemoryStore(TABLES) if kind == "memory" else open_folder()), again
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: tuple[Store, Reopen]) -> Store:
    return opened[0]


def changes(*puts: tuple[str, bytes, bytes]) -> Changes:
    result = Changes()
    for table, key, value in puts:
        result.put(table, key, value)
    return result


async def test_what_is_written_is_read_by_one_key_and_by_many(store: Store) -> None:
    store.write(changes(("seen", b"a", b"1"), ("seen", b"b", b""), ("rows", b"a", b"other")))
    assert store.get("seen", b"a") == b"1"
    assert store.get("seen", b"b") == b""
    assert store.get("seen", b"c") is None
    assert store.get_many("seen", [b"c", b"b", b"a", b"a"]) == [None, b"", b"1", b"1"]
    assert store.get_many("seen", []) == []
    assert store.get("rows", b"a") == b"other"


async def test_a_scan_gives_a_range_in_the_order_of_the_keys(store: Store) -> None:
    store.write(changes(*[("rows", bytes([n]), b"%d" % n) for n in (5, 3, 255, 0, 4)]))
    assert [key[0] for key, _ in store.scan("rows")] == [0, 3, 4, 5, 255]
    assert list(store.scan("rows", b"\x03", b"\x05")) == [(b"\x03", b"3"), (b"\x04", b"4")]
    assert list(store.scan("rows", b"\x06", b"\xff")) == []
    assert list(store.scan("seen")) == []


async def test_the_later_change_of_a_key_counts(store: Store) -> None:
    both = changes(("seen", b"a", b"1"))
    both.delete("seen", b"a")
    both.put("seen", b"b", b"1")
    both.put("seen", b"b", b"2")
    store.write(both)
    assert store.get_many("seen", [b"a", b"b"]) == [None, b"2"]


async def test_a_deleted_key_and_a_deleted_range_are_gone(store: Store) -> None:
    store.write(changes(*[("rows", bytes([n]), b"x") for n in range(6)]))
    cut = Changes()
    cut.put("rows", b"\x02", b"put before the range was deleted")
    cut.delete_range("rows", b"\x01", b"\x04")
    cut.put("rows", b"\x03", b"new")
    cut.delete("rows", b"\x05")
    store.write(cut)
    assert list(store.scan("rows")) == [(b"\x00", b"x"), (b"\x03", b"new"), (b"\x04", b"x")]


async def test_a_write_to_a_table_that_is_not_there_changes_nothing(store: Store) -> None:
    with pytest.raises(KeyError):
        store.write(changes(("seen", b"a", b"1"), ("nowhere", b"a", b"1")))
    assert store.get("seen", b"a") is None


async def test_a_closed_store_keeps_what_it_had_and_refuses_use(
    opened: tuple[Store, Reopen],
) -> None:
    store, reopen = opened
    store.write(changes(("seen", b"a", b"1")))
    again = await reopen(store)
    assert again.get("seen", b"a") == b"1"
    with pytest.raises(StoreClosed):
        store.get("seen", b"a")
    with pytest.raises(StoreClosed):
        store.write(changes(("seen", b"a", b"1")))
    store.close()


async def test_a_synced_write_is_readable_before_it_is_on_the_disk(store: Store) -> None:
    task = asyncio.ensure_future(store.write_synced(changes(("seen", b"a", b"1"))))
    await asyncio.sleep(0)
    assert store.get("seen", b"a") == b"1"
    await task
    await store.synced()


async def test_many_synced_writes_at_once_all_return(store: Store) -> None:
    await asyncio.gather(
        *(store.write_synced(changes(("seen", b"%d" % n, b"x"))) for n in range(100))
    )
    assert None not in store.get_many("seen", [b"%d" % n for n in range(100)])


async def test_a_cancelled_wait_for_the_disk_harms_nobody_else(store: Store) -> None:
    first = asyncio.ensure_future(store.write_synced(changes(("seen", b"a", b"1"))))
    second = asyncio.ensure_future(store.write_synced(changes(("seen", b"b", b"1"))))
    await asyncio.sleep(0)
    first.cancel()
    await second
    await store.write_synced(changes(("seen", b"c", b"1")))
    assert store.get_many("seen", [b"a", b"b", b"c"]) == [b"1", b"1", b"1"]


async def test_a_cleared_table_is_empty_usable_and_alone(opened: tuple[Store, Reopen]) -> None:
    store, reopen = opened
    store.write(changes(("seen", b"a", b"1"), ("rows", b"a", b"1")))
    store.clear_table("seen")
    assert list(store.scan("seen")) == []
    assert store.get("rows", b"a") == b"1"
    store.write(changes(("seen", b"b", b"2")))
    store = await reopen(store)
    assert list(store.scan("seen")) == [(b"b", b"2")]
    assert store.get("rows", b"a") == b"1"
