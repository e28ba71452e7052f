"""Rows become files: each row in exactly one, whatever is killed on the way."""

from __future__ import annotations

import asyncio
import io
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dedup.memory_store import MemoryStore
from relay.ledger.file import LedgerFile, LedgerInputCut, file_frame, frame, write_file, write_files
from relay.ledger.file_writer import ExportFailed, FileWriters
from relay.ledger.rows import Event, LedgerRow, Stage, encode_row
from relay.ledger_export import LedgerExport, RollRule, is_due
from relay.state import node_state
from relay.state.node_state import Commit, NodeState
from tests.waiting import until

NOON_MS = 1_700_049_600_000  # 2023-11-15 12:00 UTC
NEXT_DAY_MS = NOON_MS + 12 * 3_600_000
RULE = RollRule(after_s=300, at_rows=100, quiet_after_s=3600, quiet_rows=2)


def row(recorded_ms: int, stage: Stage = Stage.DELIVERED) -> LedgerRow:
    return LedgerRow(
        stage,
        recorded_ms,
        kind=1,
        origin="paris",
        count=2,
        identities=recorded_ms.to_bytes(32),
        path=("paris", "tokyo"),
    )


class Site:
    def __init__(
        self, folder: Path, store: MemoryStore | None = None, writers: FileWriters | None = None
    ) -> None:
        self.folder = folder
        self.store = store or MemoryStore(node_state.TABLES)
        self.state = NodeState(self.store)
        self.state.begin(b"\xab" * 16)
        self.export = LedgerExport(self.state, "tokyo", folder, writers or FileWriters(), RULE)

    def add(self, *rows: LedgerRow) -> None:
        commit = Commit()
        for each in rows:
            commit.row(each)
        self.state.write(commit)

    def left(self, stage: Stage = Stage.DELIVERED) -> list[int]:
        return [number for number, _ in self.state.rows(stage)]

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*.*"))

    def exported(self) -> list[tuple[str, int, int]]:
        rows = [
            value
            for path in self.folder.rglob("*.parquet")
            for value in pq.ParquetFile(path).read().to_pylist()
        ]
        return sorted(
            (value["stage"], value["number"], int(value["recorded"].timestamp() * 1000))
            for value in rows
        )


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "ledger")


async def test_what_is_due_goes_into_one_file_a_stage_and_leaves_the_store(site: Site) -> None:
    site.add(
        *(row(NOON_MS + n, stage) for n in (0, 2) for stage in (Stage.DELIVERED, Stage.PACKED))
    )
    assert await site.export.roll(NOON_MS + 1_000) == []
    made = await site.export.roll(NOON_MS + 300_001)
    assert [path.name for path in made] == [
        "packed-abababab-000000000000-000000000001.parquet",
        "delivered-abababab-000000000000-000000000001.parquet",
    ]
    assert all(path.parent.name == "date=2023-11-15" for path in made)
    assert site.exported() == [
        ("delivered", 0, NOON_MS),
        ("delivered", 1, NOON_MS + 2),
        ("packed", 0, NOON_MS),
        ("packed", 1, NOON_MS + 2),
    ]
    assert site.left() == site.left(Stage.PACKED) == []
    assert await site.export.roll(NOON_MS + 900_000) == []


async def test_everything_is_exported_when_asked(site: Site) -> None:
    site.add(*(row(NOON_MS + n) for n in range(250)))
    made = await site.export.roll(NOON_MS, everything=True)
    assert len(made) == 3, "at most 100 rows a file"
    assert [number for _, number, _ in site.exported()] == list(range(250))
    assert site.left() == []


async def test_a_file_holds_one_date(site: Site) -> None:
    site.add(row(NEXT_DAY_MS - 1), row(NEXT_DAY_MS), row(NEXT_DAY_MS - 1))
    await site.export.roll(NEXT_DAY_MS + 5)
    assert [name.split("/")[0] for name in site.files() if "parquet" in name] == [
        "date=2023-11-15"
    ], "the day that is over is closed, the new one is not"
    await site.export.roll(NEXT_DAY_MS + 5, everything=True)
    assert len(site.exported()) == 3
    assert {name.split("/")[0] for name in site.files() if "parquet" in name} == {
        "date=2023-11-15",
        "date=2023-11-16",
    }


async def test_killed_after_the_rename_the_same_range_is_written_again_the_same(
    site: Site,
) -> None:
    site.add(*(row(NOON_MS + n) for n in range(5)))
    before = site.store
    # The node dies after the file has its name and before the rows are deleted: the next one
    # finds the store as it was when the range was noted, and more rows since.
    notes = {}
    write = site.state.write

    def die(commit: Commit) -> None:
        notes["store"] = before.crash()
        raise asyncio.CancelledError

    site.state.write = die  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await site.export.roll(NOON_MS, everything=True)
    site.state.write = write  # type: ignore[method-assign]
    (path,) = site.folder.rglob("*.parquet")
    first_bytes = path.read_bytes()
    again = Site(site.folder, notes["store"])
    again.add(row(NOON_MS + 99))
    await again.export.roll(NOON_MS + 1)
    assert path.read_bytes() == first_bytes
    assert again.left() == [5]
    await again.export.roll(NOON_MS + 1, everything=True)
    assert [number for _, number, _ in again.exported()] == list(range(6))


async def test_no_file_holds_a_row_that_a_power_cut_could_take_back(site: Site) -> None:
    site.add(*(row(NOON_MS + n) for n in range(5)))
    await site.export.roll(NOON_MS, everything=True)
    again = Site(site.folder, site.store.power_cut())
    assert again.state.next_row(Stage.DELIVERED) == 5
    await again.export.roll(NOON_MS + 1, everything=True)
    assert [number for _, number, _ in again.exported()] == list(range(5))


async def test_a_lost_state_does_not_write_over_its_predecessors_files(site: Site) -> None:
    site.add(row(NOON_MS))
    await site.export.roll(NOON_MS, everything=True)
    new = Site(site.folder)
    commit = Commit()
    commit.put("state_id", b"\xcd" * 16)
    new.state.write(commit)
    new.add(row(NOON_MS + 1))
    await new.export.roll(NOON_MS, everything=True)
    assert [recorded for _, _, recorded in new.exported()] == [NOON_MS, NOON_MS + 1]


async def test_a_disk_that_refuses_keeps_the_rows_and_says_why(site: Site) -> None:
    site.add(row(NOON_MS))
    site.folder.write_text("in the way")
    with pytest.raises(ExportFailed, match=r"delivered-.*check the disk") as failed:
        await site.export.roll(NOON_MS, everything=True)
    assert "Error" in failed.value.reason
    assert site.left() == [0]
    site.folder.unlink()
    await site.export.roll(NOON_MS, everything=True)
    assert len(site.exported()) == 1


async def test_sites_of_a_process_share_the_one_that_writes(tmp_path: Path) -> None:
    writers = FileWriters(linger_s=60)
    sites = [Site(tmp_path / name, writers=writers) for name in ("a", "b", "c")]
    for site in sites:
        site.add(row(NOON_MS))
    await asyncio.gather(*(site.export.roll(NOON_MS, everything=True) for site in sites))
    async with writers.writing() as writer:
        pass
    sites[0].add(row(NOON_MS + 1))
    await sites[0].export.roll(NOON_MS, everything=True)
    async with writers.writing() as same:
        assert same is writer
    assert [len(site.exported()) for site in sites] == [2, 1, 1]

    sites[1].folder.rename(tmp_path / "moved")
    sites[1].folder.write_text("in the way")
    sites[1].add(row(NOON_MS + 1))
    with pytest.raises(ExportFailed):
        await sites[1].export.roll(NOON_MS, everything=True)
    assert writer.has_ended, "after a failure another one is begun"
    sites[2].add(row(NOON_MS + 1))
    await sites[2].export.roll(NOON_MS, everything=True)
    async with writers.writing() as other:
        assert not other.has_ended
    await writers.close()
    assert other.has_ended


async def test_a_turn_that_is_cancelled_while_its_process_starts_ends(tmp_path: Path) -> None:
    writers = FileWriters(linger_s=60)
    for turns_of_the_loop in range(12):
        turn = asyncio.create_task(writers.writing().__aenter__())
        for _ in range(turns_of_the_loop):
            await asyncio.sleep(0)
        turn.cancel()
        await asyncio.wait({turn}, timeout=20)
        assert turn.done()
        if not turn.cancelled():
            await turn.result().stop()
            writers = FileWriters(linger_s=60)
    async with writers.writing():
        pass
    await writers.close()


async def test_a_writer_that_nobody_needs_ends(tmp_path: Path) -> None:
    writers = FileWriters(linger_s=0.01)
    async with writers.writing() as writer:
        assert not writer.has_ended
    await until(lambda: writer.has_ended, "the process ended", 20)


async def test_a_writer_that_was_killed_is_followed_by_another(tmp_path: Path) -> None:
    writers = FileWriters(linger_s=60)
    async with writers.writing() as killed:
        pass
    killed.process.kill()
    await killed.process.wait()
    site = Site(tmp_path / "a", writers=writers)
    site.add(row(NOON_MS))
    await site.export.roll(NOON_MS, everything=True)
    assert len(site.exported()) == 1
    await writers.close()


def rows_of(count: int) -> list[bytes]:
    return [encode_row(row(NOON_MS + n)) for n in range(count)]


def test_input_that_ends_too_early_leaves_no_file(tmp_path: Path) -> None:
    file = LedgerFile(str(tmp_path / "d" / "a.parquet"), "tokyo", "ab", 0, 3)
    whole = file_frame(file) + b"".join(map(frame, rows_of(3)))
    for cut in (len(whole) - 1, len(file_frame(file)), len(whole) // 2):
        with pytest.raises(LedgerInputCut):
            write_files(io.BytesIO(whole[:cut]), io.StringIO())
    assert list((tmp_path / "d").iterdir()) == []
    done = io.StringIO()
    write_files(io.BytesIO(whole), done)
    assert done.getvalue() == file.path + "\n"


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    rows = rows_of(700)
    made = []
    for name in ("a", "b"):
        file = LedgerFile(str(tmp_path / name), "tokyo", "ab", 10, 710)
        write_file(file, iter(rows))
        made.append((tmp_path / name).read_bytes())
    assert made[0] == made[1]
    table = pq.read_table(tmp_path / "a")
    assert table["number"].to_pylist() == list(range(10, 710))
    assert [path.name for path in tmp_path.iterdir() if "tmp" in path.name] == []


def test_a_file_has_large_row_groups_and_a_small_footer(tmp_path: Path) -> None:
    full = replace(row(NOON_MS), count=256, identities=bytes(256 * 16), contents=bytes(256 * 8))
    file = LedgerFile(str(tmp_path / "a.parquet"), "tokyo", "ab", 0, 2500)
    write_file(file, (encode_row(full) for _ in range(2500)))
    told = pq.read_metadata(file.path)
    groups = [told.row_group(nth) for nth in range(told.num_row_groups)]
    assert [group.num_rows for group in groups] == [1024, 1024, 452]
    assert told.serialized_size < 20_000
    assert pq.read_table(file.path)["number"].to_pylist() == [*range(2500)]


def test_a_stage_is_due_by_age_by_size_and_when_its_day_is_over() -> None:
    assert not is_due(0, 0, NOON_MS, NOON_MS + 10**9, RULE)
    assert not is_due(0, 99, NOON_MS, NOON_MS + 299_999, RULE)
    assert is_due(0, 99, NOON_MS, NOON_MS + 300_000, RULE)
    assert not is_due(0, 1, NOON_MS, NOON_MS + 3_599_999, RULE), "next to nothing happens there"
    assert is_due(0, 1, NOON_MS, NOON_MS + 3_600_000, RULE)
    assert is_due(5, 105, NOON_MS, NOON_MS, RULE)
    assert is_due(0, 1, NEXT_DAY_MS - 1, NEXT_DAY_MS, RULE)


def test_idle_rows_are_told_from_batches(tmp_path: Path) -> None:
    idle = replace(row(NOON_MS), event=Event.IDLE, kind=0, count=0, identities=b"")
    file = LedgerFile(str(tmp_path / "a.parquet"), "tokyo", "ab", 0, 1)
    write_file(file, iter([encode_row(idle)]))
    assert pq.read_table(file.path)["event"].to_pylist() == ["idle"]
