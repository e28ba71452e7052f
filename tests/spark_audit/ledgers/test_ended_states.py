"""States that ended in order are as good as one: what they lack is named, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from spark_audit.ledgers.books import (
    Books,
    FileRows,
    Former,
    judge_books,
    judge_former_slots,
)
from spark_audit.ledgers.files import LedgerListing, LedgerPath
from spark_audit.ledgers.states import StateRun, renewed_ms, until_lost
from spark_audit.period import Period

PERIOD = Period(1_000_000, 2_000_000)
GROWN_MS, SHRUNK_MS = 1_300_000, 1_700_000
"""Times at which the site was cut into four slots, and into one again."""
LATER = Period(3_000_000, 4_000_000)

Slots = Mapping[int, Iterable[FileRows]]


def run(
    state: str,
    from_ms: int,
    to_ms: int,
    *,
    ends: bool = False,
    stage: str = "delivered",
) -> list[FileRows]:
    """Three files of ten rows each of one state, the last with `ended` if it `ends`."""
    third = (to_ms - from_ms) // 3
    name = f"file:/{state}/date=1970-01-01/{stage}-{state:0>8}"
    return [
        FileRows(
            f"{name}-{10 * n:012}-{10 * n + 9:012}.parquet",
            "paris",
            state,
            stage,
            10 * n,
            10 * n + 9,
            10,
            from_ms + n * third,
            to_ms if n == 2 else from_ms + (n + 1) * third - 1,
            through_ms=to_ms - 1000 if stage == "packed" else -1,
            is_end=ends and n == 2,
        )
        for n in range(3)
    ]


def judged(
    by_slot: Slots,
    slots: int = 1,
    period: Period = PERIOD,
    stages: tuple[str, ...] = ("delivered",),
) -> Books:
    files = [(slot, one) for slot, rows in by_slot.items() for one in rows]
    paths = tuple(
        LedgerPath("paris", "1970-01-01", one.uri, 1, one.stage, one.first, one.last, slot)
        for slot, one in files
    )
    listing = LedgerListing(frozenset(["paris"]), paths, (), ())
    rows = [one for _, one in files]
    return judge_books(listing, rows, {}, {"paris": stages}, period, slots={"paris": slots})


def grown(stage: str = "delivered") -> dict[int, list[FileRows]]:
    """A site of one slot that was cut into four within the period."""
    found = {slot: run(f"b{slot}", GROWN_MS + 2000, 2_100_000, stage=stage) for slot in range(4)}
    found[0] = run("a0", 900_000, GROWN_MS, ends=True, stage=stage) + found[0]
    return found


def shrunk(stage: str = "delivered") -> dict[int, list[FileRows]]:
    """A site of four slots that was cut into one within the period."""
    found = {slot: run(f"b{slot}", 900_000, SHRUNK_MS, ends=True, stage=stage) for slot in range(4)}
    found[0] += run("c0", SHRUNK_MS + 2000, 2_100_000, stage=stage)
    return found


def texts(books: Books) -> list[str]:
    return [str(one) for one in books.problems]


@pytest.mark.parametrize("stage", ["packed", "linked_out", "linked_in", "delivered"])
def test_states_that_ended_in_order_lack_nothing(stage: str) -> None:
    for books in (
        judged(grown(stage), 4, stages=(stage,)),
        judged(shrunk(stage), 1, stages=(stage,)),
    ):
        assert texts(books) == []
        assert books.incomplete == set()
        assert books.renewed == {}


def test_a_site_that_grew_and_shrank_again_lacks_nothing() -> None:
    found = {slot: run(f"b{slot}", GROWN_MS + 2000, SHRUNK_MS, ends=True) for slot in range(4)}
    found[0] = [
        *run("a0", 900_000, GROWN_MS, ends=True),
        *found[0],
        *run("c0", SHRUNK_MS + 2000, 2_100_000),
    ]
    books = judged(found, 1)
    assert (texts(books), books.renewed) == ([], {})


def test_a_state_that_did_not_end_in_order_was_lost() -> None:
    found = grown()
    found[0][2] = replace(found[0][2], is_end=False)
    assert judged(found, 4).renewed == {("paris", "delivered"): frozenset({"a0"})}


def test_a_state_whose_last_file_is_missing_was_lost() -> None:
    found = grown()
    del found[0][2]
    assert judged(found, 4).renewed == {("paris", "delivered"): frozenset({"a0"})}


def test_a_former_slot_whose_last_file_is_missing_lacks_rows_and_was_lost() -> None:
    found = shrunk()
    del found[3][2]
    books = judged(found, 1)
    assert texts(books) == [
        "paris delivered: the ledger of slot 3 ends at 1970-01-01 00:23:53, before the period does"
    ]
    assert books.incomplete == {("paris", "delivered")}
    # What an exchange of this slot has passed since, in the new state, shows nothing.
    assert books.renewed == {("paris", "delivered"): frozenset({"b0", "b1", "b2", "b3"})}


def test_a_hole_before_the_end_of_a_state_is_found() -> None:
    found = grown()
    del found[0][1]
    books = judged(found, 4)
    assert [text.partition(",")[0] for text in texts(books)] == [
        "paris delivered: rows 10 to 19 of state a0 are missing"
    ]
    assert books.incomplete == {("paris", "delivered")}
    assert books.renewed == {("paris", "delivered"): frozenset({"a0"})}


def test_a_file_that_lacks_rows_before_the_end_of_a_state_is_found() -> None:
    found = grown()
    found[0][2] = replace(found[0][2], count=9)
    books = judged(found, 4)
    assert ("paris", "delivered") in books.incomplete
    assert ("paris", "delivered") in books.renewed


@pytest.mark.parametrize(
    ("slot", "text"),
    [
        (0, "rows 0 to 9 of state b0 are missing"),
        (2, "the ledger of slot 2 begins at 1970-01-01 00:26:08 with row 10"),
    ],
)
def test_a_successor_begins_with_row_0(slot: int, text: str) -> None:
    found = grown()
    found[slot] = [one for one in found[slot] if (one.state, one.first) != (f"b{slot}", 0)]
    books = judged(found, 4)
    assert any(text in one for one in texts(books)), texts(books)
    assert books.incomplete == {("paris", "delivered")}


@pytest.mark.parametrize("stage", ["packed", "delivered"])
def test_a_slot_that_is_no_more_needs_rows_until_its_end(stage: str) -> None:
    found = shrunk(stage)
    assert texts(judged(found, 1, stages=(stage,))) == []
    # Of a present slot, the successor lacks.
    books = judged(found, 4, stages=(stage,))
    assert [text.partition(" ends at")[0] for text in texts(books)] == [
        f"paris {stage}: the ledger of slot {slot}" for slot in (1, 2, 3)
    ]
    del found[0][3:]
    books = judged(found, 1, stages=(stage,))
    assert [text.partition(" ends at")[0] for text in texts(books)] == [
        f"paris {stage}: the ledger"
    ]
    assert books.incomplete == {("paris", stage)}


def test_a_slot_that_is_no_more_and_did_not_end_needs_rows_like_the_others() -> None:
    found = shrunk()
    found[3][2] = replace(found[3][2], is_end=False)
    assert len(judged(found, 1).problems) == 1


def test_a_packer_that_ended_has_no_more_to_pack_and_a_present_one_has() -> None:
    found = shrunk("packed")
    assert texts(judged(found, 1, stages=("packed",))) == []
    found[0] = [replace(one, through_ms=min(one.through_ms, SHRUNK_MS)) for one in found[0]]
    (text,) = texts(judged(found, 1, stages=("packed",)))
    assert "that all it had packed has its row" in text


def test_a_slot_that_ended_before_the_period_needs_nothing() -> None:
    found = {slot: [*run(f"b{slot}", 900_000, 2_900_000, ends=True)] for slot in range(4)}
    for slot in range(4):
        found[slot] += run(f"b{slot}", 2_800_000, 2_990_000, ends=True, stage="packed")
    for stage in ("packed", "delivered"):
        found[0] += run("c0", 2_995_000, 4_100_000, stage=stage)
    stages = ("packed", "delivered")
    assert texts(judged(found, 1, LATER, stages)) == []
    unended = [replace(one, is_end=False) for one in found[2]]
    assert len(judged({**found, 2: unended}, 1, LATER, stages).problems) == 2
    # The last rows of its packer may be of a date before those that are read.
    found[3] = [one for one in found[3] if one.stage == "delivered"]
    assert texts(judged(found, 1, LATER, stages)) == []
    assert texts(judged(found, 1, Period(2_800_000, 4_000_000), stages)) == [
        "paris packed: not one row of this stage of slot 3"
    ]


def test_a_site_that_left_the_mesh_has_no_present_slots_but_its_first() -> None:
    found = shrunk()
    rows = [one for files in found.values() for one in files]
    paths = tuple(
        LedgerPath("paris", "1970-01-01", one.uri, 1, one.stage, one.first, one.last, slot)
        for slot, files in found.items()
        for one in files
    )
    listing = LedgerListing(frozenset(["paris"]), paths, (), ())
    former = {"paris": Former(("delivered",), None)}
    assert judge_books(listing, rows, {}, {}, PERIOD, former).problems == []


def test_a_slot_that_the_site_had_and_of_which_nothing_is_left_lacks_all_rows() -> None:
    found = shrunk()
    paths = tuple(
        LedgerPath("paris", "1970-01-01", one.uri, 1, one.stage, one.first, one.last, slot)
        for slot, files in found.items()
        for one in files
        if slot != 3
    )
    listing = LedgerListing(frozenset(["paris"]), paths, (), ())
    books = Books()
    judge_former_slots(books, listing, "paris", range(1, 4), ("packed", "delivered"))
    assert texts(books) == [
        f"paris {stage}: not one row of this stage of slot 3, which the site had in this time"
        for stage in ("packed", "delivered")
    ]
    assert books.incomplete == {("paris", "packed"), ("paris", "delivered")}


def state(slot: int, name: str, from_ms: int, to_ms: int, *, ended: bool = True) -> StateRun:
    return StateRun(slot, name, 0, from_ms, to_ms, ended)


def test_positions_count_until_the_first_state_was_lost() -> None:
    runs = [
        state(0, "a0", 0, 10),
        state(0, "b0", 11, 20),
        state(1, "b1", 11, 15, ended=False),
        state(1, "d1", 16, 20),
        state(0, "e0", 21, 30, ended=False),
    ]
    assert renewed_ms(runs) == 16
    # An exchange of slot 1 is in slot 0 since: its positions there show nothing.
    assert until_lost(runs) == {"a0", "b0", "b1"}
    whole = [replace(one, is_ended=True) for one in runs]
    assert renewed_ms(whole) is None
    assert until_lost(whole) == {"a0", "b0", "b1", "d1", "e0"}


def test_slots_that_run_side_by_side_do_not_follow_each_other() -> None:
    both = [state(0, "a0", 0, 20, ended=False), state(1, "a1", 1, 15, ended=False)]
    assert renewed_ms(both) is None
    # Rows of another slot that begin later, but not with the state, are no beginning.
    assert renewed_ms([*both, replace(both[0], slot=2, state="a2", first=5, from_ms=30)]) is None
    assert renewed_ms([*both, state(2, "b2", 30, 40)]) == 30
