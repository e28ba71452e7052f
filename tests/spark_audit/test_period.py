"""The time that an audit is about."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from spark_audit.period import BadPeriod, Period

NOW = datetime(2026, 3, 2, 0, 5, tzinfo=UTC)
DAY_MS = 86_400_000


def test_without_a_word_it_is_yesterday() -> None:
    assert Period.parse(None, None, None, NOW) == Period.parse("2026-03-01", None, None, NOW)


def test_a_day_is_from_midnight_to_midnight_utc() -> None:
    period = Period.parse("2026-03-01", None, None, NOW)
    assert period.to_ms - period.from_ms == DAY_MS
    assert str(period) == "2026-03-01 00:00Z to 2026-03-02 00:00Z"


def test_times_without_a_zone_are_utc() -> None:
    period = Period.parse(None, "2026-03-01T08:00", "2026-03-01T10:00+01:00", NOW)
    assert period.to_ms - period.from_ms == 3_600_000


def test_folders_are_read_from_the_window_before_the_period_on() -> None:
    assert Period.parse("2026-03-01", None, None, NOW).dates(3600) == "2026-02-28"


@pytest.mark.parametrize(
    "words",
    [
        ("2026-03-01", "2026-03-01T08:00", None),
        ("yesterday", None, None),
        (None, "2026-03-01T08:00", None),
        (None, "2026-03-01T08:00", "2026-03-01T08:00"),
        (None, "noon", "2026-03-01T08:00"),
    ],
)
def test_what_is_no_period_is_refused(words: tuple[str | None, str | None, str | None]) -> None:
    with pytest.raises(BadPeriod):
        Period.parse(*words, NOW)
