"""Night after night: what a day leaves open is looked for by the next ones, and told."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from federation.slots import SlotMap
from spark_audit.generate.world import Era
from spark_audit.nightly import NightlyAudit
from spark_audit.report.report import AuditVerdict
from tests.spark_audit.nightly_run.three_days import DAYS, HOUR_MS, WAITING, ThreeDays

pytestmark = pytest.mark.spark


def nightly(
    spark: Any, made: ThreeDays, clock: Any, root: Path | str | None = None
) -> NightlyAudit:
    return NightlyAudit(
        spark,
        made.mesh,
        str(made.folder / "sites"),
        str(root or made.folder / "tables"),
        now_ms=lambda: next(clock),
    )


def rows_of(spark: Any, made: ThreeDays, table: str) -> list[Any]:
    """Of all nights, as an operator reads them."""
    return sorted(spark.read.parquet(str(made.folder / "tables" / table)).collect(), key=str)


def test_three_nights(tmp_path: Path, spark: Any) -> None:
    made = ThreeDays.make(tmp_path / "made")
    clock = itertools.count(1)
    assert made.lost is not None

    first = nightly(spark, made, clock).run(made.next_night())
    pending = [made.lost, *made.settled_on_second, *made.settled_on_third]
    assert first.totals["pending"] == made.of_day(pending, 0) > 0
    assert first.verdict is AuditVerdict.NOT_PROVEN
    assert first.findings == {}

    second = nightly(spark, made, clock).run(made.next_night())
    assert second.carried is not None
    lost = made.lost.packed.row.count
    assert second.carried.days == {
        "2026-03-01": {
            "delivered": made.of_day(made.settled_on_second, 0),
            "lost": lost,
            "pending": made.of_day(made.settled_on_third, 0),
        }
    }
    assert second.findings == {"lost": lost}
    assert second.verdict is AuditVerdict.FINDINGS
    assert second.totals["pending"] == made.of_day(made.settled_on_third, 1) > 0
    assert {bytes.fromhex(one["identity"]) for one in second.shown} == {
        made.lost.identity(entry) for entry in range(lost)
    }

    job = nightly(spark, made, clock)
    third = job.run(made.next_night())
    assert third.carried is not None
    late = made.of_day(made.settled_on_third, 0)
    assert third.carried.days["2026-03-01"].total() == late
    assert third.carried.days["2026-03-01"]["late"] > 0
    assert third.carried.days["2026-03-02"].total() == made.of_day(made.settled_on_third, 1)
    assert third.findings == {"late": third.carried.totals["late"]}
    assert third.why_not_proven == []
    assert rows_of(spark, made, "pending") != []
    assert sorted(row["date"] for row in rows_of(spark, made, "nights")) == DAYS

    assert job.looked is not None
    opened = {one.uri for one in job.looked.plan.opened}
    closed = [one for one in job.looked.listing.files if one.uri not in opened]
    old = [one for one in job.looked.listing.files if one.date == "2026-03-01"]
    assert 0 < sum(one.uri in opened for one in old) < len(old) / 2
    tables = ("findings", "counts", "pending", "files")
    before = {name: rows_of(spark, made, name) for name in tables}
    for one in closed:
        file = Path(one.uri.removeprefix("file:"))
        file.write_bytes(b"x" * one.size)
    again = nightly(spark, made, clock).run(DAYS[2])
    assert again.as_json() == third.as_json()
    assert {name: rows_of(spark, made, name) for name in tables} == before


@pytest.mark.parametrize("is_former", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_state_that_ended_in_a_file_that_stays_closed_was_not_lost(
    tmp_path: Path, spark: Any, *, is_former: bool
) -> None:
    made = ThreeDays.make(tmp_path / "made")
    assert made.lost is not None
    begin_ms = made.world.from_ms
    made.world.eras[WAITING] = [
        Era(0, SlotMap(), ("aa" * 16,)),
        Era(begin_ms + 10 * HOUR_MS, SlotMap(2, {"orders": 1}), ("bb" * 16, "cc" * 16)),
    ]
    clock = itertools.count(1)
    nightly(spark, made, clock).run(made.next_night())
    if is_former:  # a version that knew of no state that ends in order
        (file,) = (made.folder / "tables" / "files").glob("date=*/part.parquet")
        pq.write_table(pq.read_table(file, partitioning=None).drop_columns("is_end"), file)
    job = nightly(spark, made, clock)
    report = job.run(made.next_night())
    assert job.looked is not None
    closed = [one for one in job.looked.plan.known_rows if one.site == WAITING]
    assert any(one.state == "aa" * 16 and one.to_ms < begin_ms + 10 * HOUR_MS for one in closed)
    assert any(one.is_end for one in closed) is not is_former
    lost = made.lost.packed.row.count
    assert report.findings.get("lost", 0) == (0 if is_former else lost)
    assert report.carried is not None
    assert (report.carried.totals["unproven"] > 0) is is_former


@pytest.mark.long
def test_rows_that_come_late_and_tables_that_are_damaged(tmp_path: Path, spark: Any) -> None:
    made = ThreeDays.make(tmp_path / "made")
    clock = itertools.count(1)
    ledger, away = made.folder / "sites" / "site3", tmp_path / "away"
    made.next_night()
    ledger.rename(away)
    first = nightly(spark, made, clock).run(DAYS[0])
    assert first.totals["unproven"] > 0
    assert first.findings == {}
    assert any("no ledger of this site" in why for why in first.why_not_proven)

    away.rename(ledger)
    made.next_night()
    told = []
    job = nightly(spark, made, clock)
    job.on_report = lambda day, report: told.append((day, report))
    second = job.run(DAYS[1])
    assert second.carried is not None
    assert made.lost is not None
    assert [one.day for one in second.carried.again] == ["2026-03-01"]
    (day, report) = told[0]
    assert day == "2026-03-01"
    # By now it is known what became of the first day, and what site3 had published is counted.
    assert report.totals["unproven"] == 0
    assert report.findings == {"lost": made.lost.packed.row.count}
    assert second.carried.days["2026-03-01"] == {"pending": report.totals["pending"]}
    assert second.verdict is AuditVerdict.FINDINGS
    assert second.carried.is_worse

    pending = made.folder / "tables" / "pending" / "date=2026-03-02" / "part.parquet"
    content = pending.read_bytes()
    pending.write_bytes(content[: len(content) // 2])
    made.next_night()
    third = nightly(spark, made, clock).run(DAYS[2])
    assert third.verdict is not AuditVerdict.PROVEN
    assert any("the tables of 2026-03-02" in why for why in third.why_not_proven)


@pytest.mark.long
def test_what_is_delivered_again_after_its_night_is_told_by_the_next_one_and_once(
    tmp_path: Path, spark: Any
) -> None:
    made = ThreeDays.make(tmp_path / "made")
    # What waited is looked for as what was open, and as what came again: it is one finding.
    again = {
        made.leak_within_batch("site1", 28),
        made.leak_across_batches("site3", 29),
        made.leak_of_what_waited(34),
    }
    clock = itertools.count(1)
    first = nightly(spark, made, clock).run(made.next_night())
    assert "leaked duplicate" not in first.findings
    second = nightly(spark, made, clock).run(made.next_night())
    assert {
        (bytes.fromhex(one["identity"]), second.name(one["destination"]))
        for one in second.shown
        if one["kind"] == "leaked duplicate"
    } == again
    assert second.findings["leaked duplicate"] == 3
    assert second.carried is not None
    assert second.carried.findings["leaked duplicate"] == 3
    assert second.table.where("kind = 'leaked duplicate'").count() == 3
    third = nightly(spark, made, clock).run(made.next_night())
    assert "leaked duplicate" not in third.findings
