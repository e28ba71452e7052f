"""What became of each numbered message."""

from __future__ import annotations

from isthmus.load.sink import Arrivals


def taken(*numbers: int, flagged: bool = False) -> Arrivals:
    arrivals = Arrivals()
    for number in numbers:
        arrivals.take(number, b"..x-mesh-redelivered.." if flagged else b"")
    return arrivals


def test_arrivals_in_order_are_delivered() -> None:
    arrivals = taken(0, 1, 2)
    assert (arrivals.delivered, arrivals.duplicates, arrivals.out_of_order) == (3, 0, 0)
    assert arrivals.missing(3) == 0
    assert arrivals.missing(5) == 2


def test_a_skipped_number_is_missing_until_it_comes() -> None:
    arrivals = taken(0, 3)
    assert arrivals.missing(4) == 2
    assert arrivals.missing(2) == 1
    assert arrivals.take(2, b"")
    assert (arrivals.missing(4), arrivals.out_of_order, arrivals.delivered) == (1, 1, 3)


def test_a_second_copy_is_a_duplicate_whether_it_says_so_or_not() -> None:
    arrivals = taken(0, 1, 1, 0)
    assert (arrivals.delivered, arrivals.duplicates, arrivals.flagged_duplicates) == (2, 2, 0)
    assert taken(0, 0, flagged=True).flagged_duplicates == 1


def test_a_copy_of_what_came_late_is_a_duplicate() -> None:
    arrivals = taken(1, 0, 0)
    assert (arrivals.delivered, arrivals.duplicates, arrivals.missing(2)) == (2, 1, 0)


def test_refused_numbers_are_not_missing() -> None:
    arrivals = taken(0, 2, 3)
    assert arrivals.missing(6, {1, 3, 5, 9}) == 1
    assert arrivals.missing(6, range(9)) == 0
