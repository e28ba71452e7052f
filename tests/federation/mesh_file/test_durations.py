"""Durations, written and read."""

from __future__ import annotations

import pytest

from federation.mesh_file.durations import BadDuration, parse_duration, show_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("72h", 259_200), ("30m", 1800), ("90s", 90), ("7d", 604_800), ("0.2s", 0.2), ("250ms", 0.25)],
)
def test_a_number_and_a_unit_are_a_duration(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "h", "72", "-3s", "1h30m", "1e3s", "inf", "٣s", "9" * 10 + "s", "3 moons"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadDuration, match="write a number and one unit"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("72 h", "72h"), ("3 days", "3d"), ("1w", "7d"), ("2 weeks", "14d"), ("90 Seconds", "90s")],
)
def test_what_was_probably_meant_is_said(text: str, meant: str) -> None:
    with pytest.raises(BadDuration, match=f"did you mean `{meant}`"):
        parse_duration(text)


@pytest.mark.parametrize("value", [72, 1.5])
def test_a_number_without_a_unit_is_asked_for_one(value: float) -> None:
    with pytest.raises(BadDuration, match=f"the duration {value} has no unit"):
        parse_duration(value)


@pytest.mark.parametrize("value", [None, True, [], {}])
def test_what_is_neither_is_refused(value: object) -> None:
    with pytest.raises(BadDuration, match="this is no duration"):
        parse_duration(value)


@pytest.mark.parametrize("text", ["3d", "71h", "90s", "30m", "0.2s"])
def test_a_duration_is_shown_in_its_biggest_whole_unit(text: str) -> None:
    assert show_duration(parse_duration(text)) == text
