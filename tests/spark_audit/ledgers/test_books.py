"""Ledgers that lack something are told, and where."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_audit.ledgers.books import LEAVING_MS, Books, FileRows, Former, judge_books
from spark_audit.ledgers.files import LedgerListing, LedgerPath
from spark_audit.period import Period

PERIOD = Period(1_000_000, 2_000_000)
STATE = "ab" * 16


def file_rows(first: int, last: int, from_ms: int, to_ms: int, name: str = "") -> FileRows:
    name = name or f"delivered-abababab-{first:012}-{last:012}.parquet"
    uri = f"file:/l/paris/ledger/date=1970-01-01/{name}"
    return FileRows(uri, "paris", STATE, "delivered", first, last, last - first + 1, from_ms, to_ms)


WHOLE = [
    file_rows(0, 9, 900_000, 1_300_000),
    file_rows(10, 19, 1_300_001, 1_700_000),
    file_rows(20, 29, 1_700_001, 2_100_000),
]


def judged(
    rows: list[FileRows],
    listed: list[FileRows] | None = None,
    sites: tuple[str, ...] = ("paris",),
    stages: tuple[str, ...] = ("delivered",),
) -> Books:
    files = tuple(
        LedgerPath("paris", "1970-01-01", uri, 1, uri.rsplit("/")[-1].partition("-")[0], *numbers)
        for uri, numbers in {
            row.uri: (
                (int(row.uri[-33:-21]), int(row.uri[-20:-8])) if "copy" not in row.uri else ()
            )
            for row in (listed or rows)
        }.items()
    )
    listing = LedgerListing(frozenset(sites), files, (), ())
    return judge_books(listing, rows, {}, {"paris": stages}, PERIOD)


def test_whole_books_have_no_problem() -> None:
    books = judged(WHOLE)
    assert books.problems == []
    assert not books.incomplete


def test_a_missing_file_is_a_hole_with_its_row_numbers() -> None:
    books = judged([WHOLE[0], WHOLE[2]])
    assert [str(p) for p in books.problems] == [
        "paris delivered: rows 10 to 19 of state abababab are missing,"
        " between 1970-01-01 00:21:40 and 1970-01-01 00:28:20"
    ]
    assert ("paris", "delivered") in books.incomplete


def test_a_file_that_holds_no_row_is_named() -> None:
    books = judged([WHOLE[0], WHOLE[2]], WHOLE)
    assert any(
        "cannot be read" in p.what and p.file.endswith(WHOLE[1].uri[-50:]) for p in books.problems
    )


def test_a_file_with_fewer_rows_than_its_name_says_is_named() -> None:
    short = replace(WHOLE[1], last=15, count=6)
    books = judged([WHOLE[0], short, WHOLE[2]])
    assert "has 6 of the 10 rows that its name says" in {p.what for p in books.problems}


def test_rows_in_two_files_are_counted_once_and_told() -> None:
    twin = replace(WHOLE[1], uri="file:/l/paris/ledger/date=1970-01-01/copy.parquet")
    books = judged([*WHOLE, twin])
    assert list(books.not_counted) == [twin.uri]
    assert len(books.problems) == 1
    assert not books.incomplete


def test_a_ledger_that_ends_in_the_period_lacks_rows() -> None:
    books = judged(WHOLE[:2])
    assert "the ledger ends at 1970-01-01 00:28:20, before the period does" in {
        p.what for p in books.problems
    }


def test_a_ledger_that_begins_in_the_period_lacks_rows_unless_it_is_its_first() -> None:
    assert any("begins at" in p.what for p in judged(WHOLE[1:]).problems)
    first = replace(WHOLE[0], from_ms=1_200_000)
    assert judged([first, *WHOLE[1:]]).problems == []


def test_a_site_without_a_ledger_is_named() -> None:
    books = judged([], sites=())
    assert [p.site for p in books.problems] == ["paris"]
    assert ("paris", "delivered") in books.incomplete


def of_another_state(rows: list[FileRows], later_ms: int = 1) -> list[FileRows]:
    return [
        replace(
            row,
            from_ms=row.from_ms + later_ms,
            to_ms=row.to_ms + later_ms,
            state="cd" * 16,
            uri=row.uri.replace("abababab", "cdcdcdcd"),
        )
        for row in rows
    ]


def test_a_state_folder_that_was_made_anew_is_told_from_the_first() -> None:
    books = judged([*WHOLE, *of_another_state(WHOLE)])
    assert books.problems == []
    assert books.renewed == {("paris", "delivered"): frozenset({STATE})}


def test_a_state_folder_that_followed_another_begins_with_row_0() -> None:
    books = judged([*WHOLE, *of_another_state(WHOLE[1:])])
    assert [str(p) for p in books.problems] == [
        "paris delivered: rows 0 to 9 of state cdcdcdcd are missing, before 1970-01-01 00:21:40"
    ]
    assert ("paris", "delivered") in books.incomplete


def test_the_first_of_two_state_folders_may_have_begun_before_the_dates_that_are_read() -> None:
    books = judged([*WHOLE[1:], *of_another_state(WHOLE, 500_000)])
    assert not any("of state" in p.what for p in books.problems)


def of_packer(through_ms: int) -> list[FileRows]:
    return [
        replace(
            row,
            stage="packed",
            uri=row.uri.replace("delivered", "packed"),
            through_ms=min(through_ms, row.to_ms),
        )
        for row in WHOLE
    ]


@pytest.mark.parametrize(
    ("through_ms", "why"), [(1_500_000, "only until 1970-01-01 00:25:00"), (-1, "nowhere")]
)
def test_a_packer_that_does_not_say_that_all_has_its_row_is_named(
    through_ms: int, why: str
) -> None:
    books = judged(of_packer(through_ms), stages=("packed",))
    assert [p.what.partition(":")[0] for p in books.problems] == [
        f"that all it had packed has its row is told {why}".partition(":")[0]
    ]
    assert ("paris", "packed") in books.incomplete
    assert judged(of_packer(2_000_000), stages=("packed",)).problems == []


def judged_former(rows: list[FileRows], left_ms: int | None) -> Books:
    files = tuple(
        LedgerPath("paris", "1970-01-01", row.uri, 1, row.stage, row.first, row.last)
        for row in rows
    )
    sites = frozenset(["paris"] if files else [])
    former = {"paris": Former(("delivered",), left_ms)}
    return judge_books(LedgerListing(sites, files, (), ()), rows, {}, {}, PERIOD, former)


def test_a_site_that_left_has_to_tell_of_the_time_until_then() -> None:
    left_ms = 1_600_000
    lacks = judged_former(WHOLE[:1], left_ms)
    assert [str(p) for p in lacks.problems] == [
        "paris delivered: the ledger ends at 1970-01-01 00:21:40,"
        " before the site left the mesh (1970-01-01 00:26:40)"
    ]
    assert ("paris", "delivered") in lacks.incomplete
    whole = judged_former(WHOLE[:2], left_ms)
    assert whole.problems == []
    assert ("paris", "delivered") not in whole.incomplete


def test_a_site_that_left_and_whose_ledger_is_gone_is_named() -> None:
    assert [str(p) for p in judged_former([], 1_600_000).problems] == [
        "paris: no ledger of this site for these dates"
    ]


def test_a_site_that_left_before_the_period_has_nothing_to_tell_of_it() -> None:
    for left_ms in (900_000, PERIOD.from_ms + LEAVING_MS):
        books = judged_former([], left_ms)
        assert books.problems == []
        # What was for it all the same nobody can tell.
        assert ("paris", "delivered") in books.incomplete


def test_a_site_that_is_out_of_the_file_only_has_to_tell_of_the_whole_period() -> None:
    assert judged_former(WHOLE, None).problems == []
    assert len(judged_former(WHOLE[:2], None).problems) == 1


def test_a_site_that_delivered_before_its_rows_begin_is_told_from_one_that_is_new() -> None:
    assert judged(WHOLE).begun == set()
    assert judged(WHOLE[1:]).begun == {"paris"}, "the first file was taken away"
    files = tuple(
        LedgerPath("paris", "1970-01-01", one.uri, 1, "delivered", one.first, one.last)
        for one in WHOLE
    )
    older = LedgerListing(frozenset(["paris"]), files, (), (), frozenset(["paris"]))
    assert judge_books(older, WHOLE, {}, {}, PERIOD).begun == {"paris"}
    listing = LedgerListing(frozenset(["paris"]), files, (), ())
    opened = [one.uri for one in WHOLE]
    assert judge_books(listing, WHOLE, {}, {}, PERIOD, opened=opened).begun == set()
    assert judge_books(listing, WHOLE, {}, {}, PERIOD, opened=opened[1:]).begun == {"paris"}
