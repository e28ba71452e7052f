"""A night's tables: replaced whole or not at all, wherever they lie; what is damaged is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_audit.ledgers.books import FileRows
from spark_audit.nightly_run.history import files_table, read_files
from spark_audit.nightly_run.plan import KnownFile
from spark_audit.nightly_run.tables import (
    FILES,
    PENDING,
    TABLES,
    DamagedTables,
    NightTables,
    TableFiles,
)

pytestmark = pytest.mark.spark

DAY = "2026-03-01"
SCHEMA = "run BIGINT"


class Killed(Exception):
    """The run ends here."""


def tables(spark: Any, run: int) -> dict[str, Any]:
    return {name: spark.range(2).selectExpr(f"CAST({run} AS BIGINT) AS run") for name in TABLES}


def of_run(run: int) -> dict[str, list[int]]:
    return {name: [run, run] for name in TABLES}


def runs(store: NightTables) -> dict[str, list[int]]:
    return {name: [row["run"] for row in store.collect(name, DAY, SCHEMA)] for name in TABLES}


def test_a_night_that_is_written_again_takes_the_place_of_the_first(
    tmp_path: Path, spark: Any
) -> None:
    store = NightTables(spark, str(tmp_path / "tables"))
    for run in (1, 2):
        store.write(DAY, tables(spark, run))
    assert runs(store) == of_run(2)
    assert store.days() == [DAY]
    grown = spark.read.parquet(str(tmp_path / "tables" / PENDING))
    assert [(str(row["date"]), row["run"]) for row in grown.collect()] == [(DAY, 2)] * 2


def test_a_run_killed_before_all_is_written_leaves_the_old_night(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = NightTables(spark, str(tmp_path / "tables"))
    store.write(DAY, tables(spark, 1))

    def killed(files: TableFiles, uri: str) -> None:
        raise Killed(uri)

    with monkeypatch.context() as patch:
        patch.setattr(TableFiles, "touch", killed)
        with pytest.raises(Killed):
            store.write(DAY, tables(spark, 2))
    store.recover()
    assert runs(store) == of_run(1)
    assert not list((tmp_path / "tables" / "_staged").glob("date=*"))


@pytest.mark.parametrize("done", range(1, len(TABLES)))
def test_a_run_killed_between_two_tables_leaves_the_new_night_to_the_next(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    store = NightTables(spark, str(tmp_path / "tables"))
    store.write(DAY, tables(spark, 1))
    replace, left = TableFiles.replace, [done]

    def killed(files: TableFiles, source: str, target: str) -> None:
        if not left[0]:
            raise Killed(target)
        left[0] -= 1
        replace(files, source, target)

    with monkeypatch.context() as patch:
        patch.setattr(TableFiles, "replace", killed)
        with pytest.raises(Killed):
            store.write(DAY, tables(spark, 2))
    store.recover()
    assert runs(store) == of_run(2)


def test_a_table_that_is_cut_or_gone_is_named(tmp_path: Path, spark: Any) -> None:
    store = NightTables(spark, str(tmp_path / "tables"))
    store.write(DAY, tables(spark, 1))
    file = tmp_path / "tables" / PENDING / f"date={DAY}" / "part.parquet"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(DamagedTables, match=DAY):
        store.count(PENDING, DAY, SCHEMA)
    file.unlink()
    with pytest.raises(DamagedTables, match="lack pending"):
        store.count(PENDING, DAY, SCHEMA)


@pytest.mark.parametrize("is_former", [False, True])
def test_a_night_keeps_which_files_end_a_state_and_former_nights_know_of_none(
    tmp_path: Path, spark: Any, *, is_former: bool
) -> None:
    rows = {
        name: FileRows(f"file:/{name}", "paris", "aa", "packed", 0, 9, 10, 5, 90, is_end=ends)
        for name, ends in (("goes-on", False), ("ends", True))
    }
    known = {one.uri: KnownFile(100, [one]) for one in rows.values()}
    table = files_table(spark, known, [])
    if is_former:
        table = table.drop("is_end")
    store = NightTables(spark, str(tmp_path / "tables"))
    store.write(DAY, {**tables(spark, 1), FILES: table})
    found, bad = read_files(store, DAY)
    assert bad == {}
    assert {uri: file.rows[0].is_end for uri, file in found.items()} == {
        "file:/goes-on": False,
        "file:/ends": not is_former,
    }
    if not is_former:
        assert found == known


@pytest.mark.parametrize("renames_over", [("viewfs",), ()])
def test_a_file_system_by_its_uri(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, renames_over: tuple[str, ...]
) -> None:
    """Once as one that renames over a file, once as an object store."""
    monkeypatch.setattr("spark_audit.nightly_run.tables._RENAMES_OVER", renames_over)
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    (tmp_path / "far").mkdir()
    name = f"far{len(renames_over)}"
    conf.set(f"fs.viewfs.mounttable.{name}.link./audit", (tmp_path / "far").as_uri())
    store = NightTables(spark, f"viewfs://{name}/audit/tables")
    for run in (1, 2):
        store.write(DAY, tables(spark, run))
    assert runs(store) == of_run(2)
    store.recover()
    assert store.days() == [DAY]
