"""A part of the time, as people read it."""

from __future__ import annotations

import pytest

from federation.planning.availability import Availability, show_apart, show_part


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        (1.0, "100 %"),
        (0.99, "99 %"),
        (0.9999, "99.99 %"),
        (0.999949, "99.9949 %"),
        (0.123456, "12.3 %"),
        (0.0, "0 %"),
        (1 - 2.5e-9, "99.99999975 %"),
        (1 - 1e-16, "100 %"),
    ],
)
def test_a_part_has_as_many_digits_as_tell_it_from_100(part: float, shown: str) -> None:
    assert show_part(part) == shown


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        (1.0, "0 s"),
        (0.99, "3.7 d"),
        (0.9999, "53 min"),
        (0.999, "8.8 h"),
        (0.999999, "32 s"),
        (1 - 1e-9, "under 1 s"),
        (0.0, "365 d"),
    ],
)
def test_how_long_in_a_year_two_sites_are_apart(part: float, shown: str) -> None:
    assert show_apart(part) == shown


def test_what_was_sampled_tells_its_error() -> None:
    assert str(Availability(0.9, 0.00123)) == "~90 ± 0.12 %"
    assert str(Availability(0.9)) == "90 %"


def test_errors_of_two_that_both_must_work_add_up() -> None:
    both = Availability(0.5, 0.03).and_then(Availability(0.8, 0.04))
    assert both.part == pytest.approx(0.4)
    assert both.standard_error == pytest.approx(((0.03 * 0.8) ** 2 + (0.04 * 0.5) ** 2) ** 0.5)
