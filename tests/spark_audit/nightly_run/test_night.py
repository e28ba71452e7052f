"""Which night speaks for which day, what was skipped, and which files a night opens."""

from __future__ import annotations

import pytest

from spark_audit.judge.positions import SeenIncarnation
from spark_audit.ledgers.books import FileRows
from spark_audit.ledgers.files import LedgerListing, LedgerPath
from spark_audit.nightly import has_come
from spark_audit.nightly_run.history import NightHistory
from spark_audit.nightly_run.night import (
    Night,
    OpenDay,
    carried_since,
    skipped,
    speakers,
    still_open,
)
from spark_audit.nightly_run.plan import KnownFile, plan_night


def night(day: int, ran_ms: int, *open_days: OpenDay) -> Night:
    return Night(f"2026-03-0{day}", ran_ms, "proven", 0, 0, open_days)


def file(site: str, day: int, number: int, size: int = 100) -> LedgerPath:
    name = f"delivered-aa-{number:012}-{number:012}.parquet"
    date = f"2026-03-0{day}"
    uri = f"file:/sites/{site}/ledger/date={date}/{name}"
    return LedgerPath(site, date, uri, size, "delivered", number, number)


def known(path: LedgerPath, to_ms: int, *, is_held: bool = False) -> dict[str, KnownFile]:
    rows = FileRows(path.uri, path.site, "aa", "delivered", path.first, path.last, 1, 0, to_ms)
    return {path.uri: KnownFile(path.size, [rows], is_held)}


def test_the_night_before_speaks_for_all_earlier_days() -> None:
    nights = [night(1, 1), night(2, 2), night(3, 3)]
    assert speakers(nights, "2026-03-04") == [(nights[2], "")]
    assert speakers(nights, "2026-03-03") == [(nights[1], "")]
    assert speakers([], "2026-03-03") == []


def test_a_day_that_was_audited_again_speaks_for_itself_and_what_was_before() -> None:
    nights = [night(1, 1), night(2, 9), night(3, 3)]
    assert speakers(nights, "2026-03-04") == [(nights[1], ""), (nights[2], "2026-03-02")]


def test_what_is_open_is_said_by_who_speaks_for_the_day() -> None:
    lacks = OpenDay("2026-03-02", "site1: rows lack", ("site1",))
    later = night(3, 3, lacks)
    assert still_open(speakers([night(2, 2, lacks), later], "2026-03-04")) == [lacks]
    assert still_open(speakers([night(2, 4), later], "2026-03-04")) == []


def test_a_night_reads_back_what_it_kept() -> None:
    one = Night(
        "2026-03-02",
        5,
        "findings",
        3,
        7,
        (OpenDay("2026-03-02", "why", ("site1",), ("site1",)),),
        (SeenIncarnation("cluster", "00ff", "5e0c", 3, 12),),
    )
    assert Night.of("2026-03-02", 5, "findings", 3, 7, one.kept()) == one
    with pytest.raises(ValueError, match="Expecting"):
        Night.of("2026-03-02", 5, "findings", 3, 7, "")


def test_days_between_audits_were_skipped() -> None:
    audited = ["2026-03-01", "2026-03-04"]
    assert skipped(audited, "2026-03-06", "2026-02-01") == [
        *("2026-03-02", "2026-03-03", "2026-03-05")
    ]
    assert skipped(audited, "2026-03-06", "2026-03-03") == ["2026-03-03", "2026-03-05"]
    assert skipped([], "2026-03-06", "2026-02-01") == []


def test_messages_are_looked_for_as_long_as_they_may_come() -> None:
    assert carried_since("2026-03-10", 8 * 3600) == "2026-03-03"
    assert carried_since("2026-03-10", 8.5 * 86_400) == "2026-03-01"


def test_only_files_of_the_day_and_its_window_are_opened() -> None:
    early, late, today = file("site1", 1, 0), file("site1", 1, 1), file("site1", 2, 2)
    told = {**known(early, 10), **known(late, 30)}
    plan = plan_night([early, late, today], told, "2026-03-01", 20, is_open=False)
    assert plan.opened == (late, today)
    assert plan.of_day == (early, late, today)
    assert [rows.uri for rows in plan.known_rows] == [early.uri]
    unknown = plan_night([early, late, today], {}, "2026-03-01", 20, is_open=False)
    assert unknown.opened == (early, late, today)


def test_for_what_is_open_files_that_nobody_has_seen_and_those_that_have_it_are_opened() -> None:
    closed, held, new, today = (file("site1", day, day) for day in (1, 2, 3, 5))
    told = {**known(closed, 10), **known(held, 10, is_held=True)}
    files = [closed, held, new, today]
    plan = plan_night(files, told, "2026-03-05", 50, is_open=True)
    assert plan.opened == (held, new, today)
    assert plan.day_opened == {today.uri}
    assert plan_night(files, told, "2026-03-05", 50, is_open=False).opened == (today,)


def test_a_file_of_another_size_is_another_file() -> None:
    one = file("site1", 1, 0)
    plan = plan_night([one], known(file("site1", 1, 0, 99), 10), "2026-03-01", 20, is_open=False)
    assert plan.opened == (one,)


def test_rows_that_were_missing_may_have_come() -> None:
    day = OpenDay("2026-03-02", "why", ("site1",))
    there = file("site1", 2, 0)
    before = NightHistory(known=known(there, 10))

    def comes(path: LedgerPath, of: OpenDay = day) -> bool:
        listing = LedgerListing(frozenset(["site1"]), (there, path), (), ())
        return has_come(of, listing, before)

    assert not comes(there)
    assert comes(file("site1", 2, 1))
    assert not comes(file("site2", 2, 1))
    # A hole of yesterday is not filled by rows of today; what had stopped goes on with them.
    assert not comes(file("site1", 3, 1))
    assert comes(file("site1", 3, 1), OpenDay("2026-03-02", "why", ("site1",), ("site1",)))
    before.bad[file("site1", 2, 1).uri] = 100
    assert not comes(file("site1", 2, 1))
    assert comes(file("site1", 2, 1, 101))
