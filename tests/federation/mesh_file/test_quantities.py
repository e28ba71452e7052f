"""Durations, sizes and rates, written and read."""

from __future__ import annotations

import pytest

from federation.mesh_file.quantities import (
    BadDuration,
    BadSize,
    parse_duration,
    parse_rate,
    parse_size,
    show_duration,
    show_size,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("72h", 259_200), ("30m", 1800), ("90s", 90), ("7d", 604_800), ("0.2s", 0.2), ("250ms", 0.25)],
)
def test_a_number_and_a_unit_are_a_duration(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "h", "72", "-3s", "1h30m", "1e3s", "inf", "٣s", "9" * 10 + "s", "3 moons"]
)
def test_any_other_text_is_no_duration(text: str) -> None:
    with pytest.raises(BadDuration, match="write a number and one unit"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("72 h", "72h"), ("3 days", "3d"), ("1w", "7d"), ("2 weeks", "14d"), ("90 Seconds", "90s")],
)
def test_a_likely_duration_is_suggested(text: str, meant: str) -> None:
    with pytest.raises(BadDuration, match=f"did you mean `{meant}`"):
        parse_duration(text)


@pytest.mark.parametrize("value", [72, 1.5])
def test_a_duration_needs_a_unit(value: float) -> None:
    with pytest.raises(BadDuration, match=f"the duration {value} has no unit"):
        parse_duration(value)


@pytest.mark.parametrize("value", [None, True, [], {}])
def test_a_duration_is_neither_a_flag_nor_a_list(value: object) -> None:
    with pytest.raises(BadDuration, match="this is no duration"):
        parse_duration(value)


@pytest.mark.parametrize("text", ["3d", "71h", "90s", "30m", "0.2s"])
def test_a_duration_is_shown_in_its_biggest_whole_unit(text: str) -> None:
    assert show_duration(parse_duration(text)) == text


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("20GB", 20_000_000_000),
        ("1.5TB", 1_500_000_000_000),
        ("256MiB", 268_435_456),
        ("1KiB", 1024),
        ("7B", 7),
        (" 2MB ", 2_000_000),
        ("0GB", 0),
    ],
)
def test_a_number_and_a_unit_are_a_size(text: str, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "GB", "lots", "-1GB", "1GB2MB", "1e3GB", "1XB", "iB", "1iB"])
def test_any_other_text_is_no_size(text: str) -> None:
    with pytest.raises(BadSize, match="write a number and one unit"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "meant"), [("20gb", "20GB"), ("20 GB", "20GB"), ("20G", "20GB"), ("1 mib", "1MiB")]
)
def test_a_likely_size_is_suggested(text: str, meant: str) -> None:
    with pytest.raises(BadSize, match=f"did you mean `{meant}`"):
        parse_size(text)


@pytest.mark.parametrize("value", [20, 1.5])
def test_a_size_needs_a_unit(value: float) -> None:
    with pytest.raises(BadSize, match=f"the size {value} has no unit"):
        parse_size(value)


@pytest.mark.parametrize("value", [None, True, [], {}])
def test_a_size_is_neither_a_flag_nor_a_list(value: object) -> None:
    with pytest.raises(BadSize, match="this is no size"):
        parse_size(value)


def test_a_rate_is_a_size_a_second() -> None:
    assert parse_rate("200KB/s") == 200_000


@pytest.mark.parametrize("value", ["200KB", "200KB/h", 200, None])
def test_any_other_rate_is_refused(value: object) -> None:
    with pytest.raises(BadSize, match="write a size a second"):
        parse_rate(value)


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0B"), (999, "999B"), (1000, "1KB"), (285.12e9, "285GB")]
)
def test_a_size_is_shown_in_its_biggest_unit(count: float, shown: str) -> None:
    assert show_size(count) == shown
