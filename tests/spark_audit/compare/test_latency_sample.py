"""Which minutes stand for a large day, and which files have rows of them."""

from __future__ import annotations

from typing import Any

import pytest

from spark_audit.compare.latency import MOST_TIMED, MinuteSample
from spark_audit.period import Period

MINUTE_MS = 60_000
NOW_MS = 29_538_127 * MINUTE_MS + 17


@pytest.mark.parametrize(
    ("rows", "every"),
    [
        (0, 1),
        (MOST_TIMED, 1),
        (MOST_TIMED + 1, 2),
        (7 * MOST_TIMED, 10),
        (60 * MOST_TIMED, 60),
        (9000 * MOST_TIMED, 60),
    ],
)
def test_the_more_rows_the_fewer_minutes(rows: int, every: int) -> None:
    assert MinuteSample.of(rows) == MinuteSample(every)


@pytest.mark.spark
@pytest.mark.parametrize("every", [1, 2, 5, 12, 60])
def test_a_file_is_read_if_a_row_of_it_may_be_in_the_sample(spark: Any, every: int) -> None:
    sample = MinuteSample(every)
    lasting = [0, 1, every - 1, every, 3 * every]
    spans = [
        (NOW_MS + begin * MINUTE_MS, NOW_MS + (begin + minutes) * MINUTE_MS)
        for begin in range(2 * every)
        for minutes in lasting
    ]
    table = spark.createDataFrame(spans, "first_ms LONG, last_ms LONG")
    held = table.selectExpr(
        "first_ms",
        "last_ms",
        f"exists(sequence(first_ms, last_ms, {MINUTE_MS}L), t -> {sample.holds('t')}) AS held",
    )
    links = held.selectExpr("*", "'linked_in' AS stage", "CAST(NULL AS LONG) AS first_minute")
    assert links.where(f"held <> coalesce({sample.is_in_file()}, false)").collect() == []
    others = held.selectExpr("*", "'packed' AS stage", f"first_ms DIV {MINUTE_MS} AS first_minute")
    of_one_minute = others.where("first_ms = last_ms")
    assert of_one_minute.where(f"held <> ({sample.is_in_file()})").collect() == []


@pytest.mark.spark
@pytest.mark.parametrize("every", [1, 2, 12, 60])
@pytest.mark.parametrize("length_ms", [1, MINUTE_MS, 7_000_001, 86_400_000])
def test_the_times_of_a_sample_are_those_of_the_period_that_it_holds(
    spark: Any, every: int, length_ms: int
) -> None:
    sample, period = MinuteSample(every), Period(NOW_MS, NOW_MS + length_ms)
    span = f"sequence({period.from_ms - 5 * MINUTE_MS}L, {period.to_ms + 5 * MINUTE_MS}L, 20000L)"
    ends = (period.from_ms - 1, period.from_ms, period.to_ms - 1, period.to_ms)
    exact = f"array({', '.join(f'{ms}L' for ms in ends)})"
    rows = spark.sql(f"SELECT explode(concat({span}, {exact})) AS ms").selectExpr(
        "ms", "timestamp_millis(ms) AS first_published"
    )
    wanted = f"ms >= {period.from_ms} AND ms < {period.to_ms} AND {sample.holds('ms')}"
    asked = f"({sample.times(period)}) AND {sample.holds('ms')}"
    assert rows.where(f"({wanted}) <> ({asked})").collect() == []


def test_a_day_s_few_minutes_are_told_one_by_one() -> None:
    day = Period(0, 86_400_000)
    assert MinuteSample(60).times(day).count(" OR ") == 23
    assert " OR " not in MinuteSample(1).times(day)
    assert " OR " not in MinuteSample(2).times(day)
