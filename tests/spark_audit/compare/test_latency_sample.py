"""Which minutes stand for a large day, and which files have rows of them."""

from __future__ import annotations

from typing import Any

import pytest

from spark_audit.compare.latency import MOST_TIMED, Sample

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
    assert Sample.of(rows) == Sample(every)


@pytest.mark.spark
@pytest.mark.parametrize("every", [1, 2, 5, 12, 60])
def test_a_file_is_read_if_a_row_of_it_may_be_in_the_sample(spark: Any, every: int) -> None:
    sample = Sample(every)
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
