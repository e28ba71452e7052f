"""The names logged last, kept and read again."""

from __future__ import annotations

from relay.batches.batch import Place
from relay.log.recent_names import RecentNames
from tests.log_batches import batch_name

THREE_BLOCKS = 1_100


def kept_and_loaded(recent: RecentNames) -> RecentNames:
    loaded = RecentNames()
    loaded.load(recent.encoded_blocks(), recent.points)
    return loaded


def test_whatever_the_number_of_names_all_that_was_kept_is_read_again() -> None:
    recent = RecentNames()
    for number in range(THREE_BLOCKS):
        recent.read_back(batch_name(number), number, 2, 100, known=False)
        # Kept again and again while a block fills: what was encoded then is not all of it.
        if number % 37 == 0 or number % 100 >= 98:
            assert list(kept_and_loaded(recent)) == list(recent)


def test_names_that_were_loaded_are_kept_with_what_came_since() -> None:
    recent = RecentNames()
    for number in range(499):
        recent.read_back(batch_name(number), number, 2, 100, known=False)
    again = kept_and_loaded(recent)
    assert len(kept_and_loaded(again)) == 499
    again.read_back(batch_name(499), 499, 2, 100, known=False)
    assert kept_and_loaded(again).checked == again.checked


def test_nothing_is_behind_who_has_come_to_a_copy_at_the_end() -> None:
    recent = RecentNames()
    for number in range(10):
        recent.read_back(batch_name(number), number, 2, 100, known=False)
    recent.read_back(batch_name(7), 10, 2, 100, known=True)
    assert recent.lag(Place(7, batch_name(7))) == (4, 200)
    assert recent.lag(Place(10, batch_name(7))) == (0, 0)
    recent.read_back(batch_name(11), 11, 2, 100, known=False)
    assert recent.lag(Place(10, batch_name(7))) == (2, 100)
