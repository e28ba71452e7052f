"""From where on a successor has to read the log."""

from __future__ import annotations

import pytest

from relay.packing.comeback.past import LATE_S, SETTLED_S, ResumePoint, ResumePointSearch


@pytest.fixture
def search() -> ResumePointSearch:
    """Noted at 0 and at 10 seconds: up to batches 4 and 7 had been handed over."""
    made = ResumePointSearch()
    made.begin(ResumePoint(100))
    made.note(0.0, 130, 4)
    made.note(10.0, 150, 7)
    return made


def test_at_first_it_is_where_the_past_was_read_from(search: ResumePointSearch) -> None:
    assert not search.advance(1.0, 8)
    assert search.place == ResumePoint(100, -1)


def test_the_resume_point_moves_once_all_before_is_settled_for_a_while(
    search: ResumePointSearch,
) -> None:
    assert not search.advance(SETTLED_S - 0.1, 8)
    assert search.advance(SETTLED_S, 8)
    assert search.place == ResumePoint(130, 4)
    assert not search.advance(SETTLED_S, 8)
    assert search.advance(SETTLED_S + 10, 8)
    assert search.place == ResumePoint(150, 7)


def test_the_resume_point_stays_before_all_that_may_still_come_back(
    search: ResumePointSearch,
) -> None:
    assert not search.advance(1000.0, 4)
    assert search.advance(1000.0, 5)
    assert search.place == ResumePoint(130, 4)
    assert search.advance(1000.0, 8)
    assert search.place == ResumePoint(150, 7)


def test_the_resume_point_stays_while_more_of_the_past_may_come_back() -> None:
    search = ResumePointSearch()
    search.begin(ResumePoint(100), late_until=LATE_S)
    search.note(0.0, 130, 4)
    # What came back last was acknowledged then, and a lost node may have swallowed that.
    assert not search.advance(2 * LATE_S - 0.1, 8)
    assert search.advance(2 * LATE_S, 8)
    assert search.place == ResumePoint(130, 4)
