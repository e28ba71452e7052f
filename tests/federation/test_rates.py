"""Rates by the hour, as they are written and as they hold."""

from __future__ import annotations

import pytest

from federation.lanes import show_rate
from federation.mesh_file.keys.lane_values import parse_line_rate, parse_max_rate
from federation.mesh_file.quantities import BadSize


def minute(text: str) -> int:
    hours, minutes = text.split(":")
    return int(hours) * 60 + int(minutes)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("20Mbit/s", 2_500_000),
        ("512kbit/s", 64_000),
        ("1Gbit/s", 125_000_000),
        ("1.5Mbit/s", 187_500),
        ("2MB/s", 2_000_000),
        ("64KiB/s", 65_536),
        ("unlimited", None),
    ],
)
def test_a_rate_is_in_bits_or_in_bytes(text: str, rate: int | None) -> None:
    assert parse_line_rate(text) == rate


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("20mbit/s", "did you mean `20Mbit/s`?"),
        ("20Mbps", "did you mean `20Mbit/s`?"),
        ("20 Mbit/s", "did you mean `20Mbit/s`?"),
        ("2mb/s", "did you mean `2MB/s`?"),
        ("2MB", "did you mean `2MB/s`?"),
        ("fast", "write such as 20Mbit/s"),
        (20, "write 20kbit/s or 20Mbit/s"),
        ("8kbit/s", "write 16kbit/s or more"),
        ("0MB/s", "write 16kbit/s or more"),
        (["2MB/s"], "this is no rate"),
    ],
)
def test_what_is_no_rate_is_told_with_what_was_meant(text: object, said: str) -> None:
    with pytest.raises(BadSize) as caught:
        parse_line_rate(text)
    assert said in str(caught.value)


def test_a_schedule_holds_by_the_minute_of_the_day_over_midnight_too() -> None:
    schedule = parse_max_rate(
        {"default": "20Mbit/s", "22:00-06:00": "unlimited", "12:00-13:30": "40Mbit/s"}
    )
    held = {
        "05:59": None,
        "06:00": 2_500_000,
        "11:59": 2_500_000,
        "12:00": 5_000_000,
        "13:29": 5_000_000,
        "13:30": 2_500_000,
        "21:59": 2_500_000,
        "22:00": None,
        "00:00": None,
    }
    assert {at: schedule.at(minute(at)) for at in held} == held
    assert str(schedule) == "20Mbit/s, 22:00-06:00: unlimited, 12:00-13:30: 40Mbit/s"


def test_hours_to_midnight_end_there() -> None:
    schedule = parse_max_rate({"18:00-24:00": "1MB/s"})
    assert schedule.at(minute("23:59")) == 1_000_000
    assert schedule.at(0) is None


@pytest.mark.parametrize(
    ("hours", "said"),
    [
        ({"22-6": "1MB/s"}, "`22-6` is no time of the day"),
        ({"25:00-06:00": "1MB/s"}, "is no time of the day"),
        ({"24:00-06:00": "1MB/s"}, "a day has 24 hours"),
        ({"06:00-06:00": "1MB/s"}, "begins where it ends"),
        ({"06:00-12:00": "1MB/s", "11:00-13:00": "2MB/s"}, "at 11:00 both"),
        ({}, "this is no rate"),
        ({22: "1MB/s"}, "this is no rate"),
    ],
)
def test_hours_that_are_none_are_refused(hours: object, said: str) -> None:
    with pytest.raises(BadSize) as caught:
        parse_max_rate(hours)
    assert said in str(caught.value)


def test_rates_are_shown_in_bits() -> None:
    assert [show_rate(one) for one in (2_500_000, 64_000, 187_500, 100, None)] == [
        "20Mbit/s",
        "512kbit/s",
        "1.5Mbit/s",
        "800bit/s",
        "unlimited",
    ]
