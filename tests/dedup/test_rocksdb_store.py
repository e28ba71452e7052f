"""What only the store on a real disk can show: locks, kills, damage, shared syncs."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dedup.rocksdb_store import RocksdbStore, SyncPlace
from dedup.store import Changes, StoreDamaged, StoreFailed, StoreLocked
from tests.waiting import until

HOLD = """
import sys
from pathlib import Path
from dedup.rocksdb_store import RocksdbStore
from dedup.store import Changes
store = RocksdbStore(Path(sys.argv[1]), ["t"])
for n in range(1000):
    changes = Changes()
    changes.put("t", b"a%d" % n, b"x")
    changes.put("t", b"b%d" % n, b"x")
    store.write(changes)
print("written", flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has written to the store and holds it."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "written\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def put(key: bytes) -> Changes:
    changes = Changes()
    changes.put("t", key, b"x")
    return changes


def test_a_folder_in_use_is_refused_with_the_process_that_has_it(tmp_path: Path) -> None:
    with holder(tmp_path / "state") as process, pytest.raises(StoreLocked) as refused:
        RocksdbStore(tmp_path / "state", ["t"])
    assert refused.value.holder == process.pid
    assert str(process.pid) in str(refused.value)


def test_a_folder_open_in_this_process_is_refused_and_stays_locked(tmp_path: Path) -> None:
    store = RocksdbStore(tmp_path / "state", ["t"])
    for _ in range(2):
        with pytest.raises(StoreLocked):
            RocksdbStore(tmp_path / "state", ["t"])
    store.write(put(b"a"))
    store.close()
    RocksdbStore(tmp_path / "state", ["t"]).close()


def test_all_that_a_killed_process_wrote_is_there(tmp_path: Path) -> None:
    with holder(tmp_path / "state") as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        store = RocksdbStore(tmp_path / "state", ["t"])
        assert len(list(store.scan("t"))) == 2000
        store.close()


def test_a_log_cut_off_in_mid_write_leaves_whole_writes_in_their_order(tmp_path: Path) -> None:
    """What a power cut does to unsynced writes: a prefix, and no half of one."""
    with holder(tmp_path / "state"):
        pass
    (log,) = (tmp_path / "state").glob("*.log")
    whole = log.read_bytes()
    for size in (len(whole) // 2, len(whole) // 3, 0):
        log.write_bytes(whole[:size])
        store = RocksdbStore(tmp_path / "state", ["t"])
        found = {key for key, _ in store.scan("t")}
        writes = len(found) // 2
        expected = {side + str(n).encode() for n in range(writes) for side in (b"a", b"b")}
        assert found == expected
        assert writes < 1000
        store.close()
        for made in (tmp_path / "state").glob("*.log"):
            made.unlink()
        log.write_bytes(whole)


def test_a_damaged_folder_is_refused_with_what_to_do(tmp_path: Path) -> None:
    store = RocksdbStore(tmp_path / "state", ["t"])
    store.write(put(b"a"))
    store.close()
    for manifest in (tmp_path / "state").glob("MANIFEST-*"):
        manifest.write_bytes(b"not a manifest")
    with pytest.raises(StoreDamaged, match="isthmus recover"):
        RocksdbStore(tmp_path / "state", ["t"])


def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreFailed, match="exists"):
        RocksdbStore(tmp_path / "file", ["t"])


def test_tables_of_another_version_do_not_hinder(tmp_path: Path) -> None:
    store = RocksdbStore(tmp_path / "state", ["t", "older"])
    store.write(put(b"a"))
    store.close()
    store = RocksdbStore(tmp_path / "state", ["t", "newer"], point_tables=frozenset({"newer"}))
    assert store.get("t", b"a") == b"x"
    assert store.get("newer", b"a") is None
    store.close()


class Flushes:
    """Stands in for the store's sync: counted, and held until `let_go`."""

    def __init__(self, store: RocksdbStore) -> None:
        self.begun = 0
        self.threads: set[int] = set()
        self.started = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)
        self.error: Exception | None = None
        for _ in range(SyncPlace.STRIKES):
            store._place.took(SyncPlace.QUICK_S)  # a slow disk, so in a thread
        self._real = store._flush
        store._flush = self._flush  # type: ignore[method-assign]

    def _flush(self) -> None:
        self.begun += 1
        self.started.release()
        self.threads.add(threading.get_ident())
        self.gate.acquire()
        if self.error is not None:
            raise self.error
        self._real()


def test_a_sync_is_in_the_callers_thread_until_several_in_a_row_are_slow() -> None:
    place = SyncPlace()
    for seconds in (0.0001, 1.0, 0.0001, 1.0):
        assert place.is_here
        place.took(seconds)
    assert place.is_here, "never two in a row"
    place.took(SyncPlace.QUICK_S)
    for _ in range(SyncPlace.TRIAL_EVERY):
        assert not place.is_here
        place.went_elsewhere()
    assert place.is_here
    place.took(1.0)
    assert not place.is_here, "the trial was slow"


async def test_on_a_quick_disk_a_sync_takes_no_thread(tmp_path: Path) -> None:
    store = RocksdbStore(tmp_path / "state", ["t"])
    threads: list[int] = []
    real = store._flush

    def noting() -> None:
        threads.append(threading.get_ident())
        real()

    store._flush = noting  # type: ignore[method-assign]
    await store.write_synced(put(b"first"))
    assert threads == [threading.get_ident()]
    store.close()


async def test_many_callers_share_one_sync_and_the_loop_runs_on(tmp_path: Path) -> None:
    store = RocksdbStore(tmp_path / "state", ["t"])
    flushes = Flushes(store)
    first = asyncio.ensure_future(store.write_synced(put(b"first")))
    await asyncio.to_thread(flushes.started.acquire)
    rest = [asyncio.ensure_future(store.write_synced(put(b"%d" % n))) for n in range(50)]
    await asyncio.sleep(0)
    assert len(list(store.scan("t"))) == 51, "written, while the first sync still runs"
    flushes.gate.release()
    await first
    assert not any(task.done() for task in rest), "written after that sync had begun"
    flushes.gate.release()
    await asyncio.gather(*rest)
    assert flushes.begun == 2
    assert threading.get_ident() not in flushes.threads
    await store.synced()
    assert flushes.begun == 2, "nothing new, so nothing to sync"
    flushes.gate.release(5)
    store.close()


async def test_a_failed_sync_tells_everyone_who_waits(tmp_path: Path) -> None:
    store = RocksdbStore(tmp_path / "state", ["t"])
    flushes = Flushes(store)
    flushes.error = StoreFailed("sync", "no space left")
    waiting = [asyncio.ensure_future(store.write_synced(put(b"%d" % n))) for n in range(3)]
    flushes.gate.release(10)
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [StoreFailed] * 3
    flushes.error = None
    store.close()


@pytest.mark.long
async def test_a_big_table_is_cleared_at_once_and_its_files_go(tmp_path: Path) -> None:
    store = RocksdbStore(tmp_path / "state", ["t", "u"], point_tables=frozenset({"t"}))
    for batch in range(200):
        changes = Changes()
        changes.table("t").update((b"%d.%d" % (batch, n), b"x" * 100) for n in range(256))
        store.write(changes)

    def on_disk() -> int:
        return sum(path.stat().st_size for path in (tmp_path / "state").glob("*.sst"))

    # Memory is written out and merged behind our back, at the disk's pace.
    held = await until(lambda: on_disk() > 2_000_000 and on_disk(), "some of it in files", 60)
    store.clear_table("t")
    assert list(store.scan("t")) == []
    store.close()
    RocksdbStore(tmp_path / "state", ["t", "u"]).close()
    assert on_disk() < held / 10


async def test_a_cleared_table_stays_empty_though_its_deletions_never_reached_the_disk(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "state"
    store = RocksdbStore(folder, ["t"])
    await store.write_synced(put(b"x"))
    store.close()
    store = RocksdbStore(folder, ["t"])
    deletion = Changes()
    deletion.delete("t", b"x")
    store.write(deletion)
    assert list(store.scan("t")) == []
    store.clear_table("t")
    shutil.copytree(folder, tmp_path / "left")
    store.close()
    for log in (tmp_path / "left").glob("*.log"):
        log.write_bytes(b"")
    after_power_cut = RocksdbStore(tmp_path / "left", ["t"])
    assert list(after_power_cut.scan("t")) == []
    after_power_cut.close()
