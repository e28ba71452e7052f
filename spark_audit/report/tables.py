"""Tables of a report: messages by verdict and minute of publishing, and the displayed findings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from spark_audit.frames import small_table
from spark_audit.report.report import PairMinute

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def counts_by_minute(messages: DataFrame, whole: DataFrame) -> list[PairMinute]:
    """Count the messages of opened batches, and of unopened whole ones: `origin`, `expected`,
    `exchange`, `first_ms`, `count`.
    """
    from pyspark.sql import functions as F  # noqa: N812

    delivered = whole.select(
        "origin",
        F.explode("expected").alias("destination"),
        "exchange",
        F.expr("first_ms DIV 60000 * 60000").alias("minute_ms"),
        F.lit("delivered").alias("verdict"),
        "count",
    )
    minutes = _of_messages(messages).unionByName(delivered)
    by_verdict = minutes.groupBy("origin", "destination", "exchange", "minute_ms", "verdict")
    return [PairMinute(*row) for row in by_verdict.agg(F.sum("count")).collect()]


def counts_table(spark: SparkSession, counts: Iterable[PairMinute]) -> DataFrame:
    return small_table(
        spark,
        counts,
        {
            **dict.fromkeys(("origin", "destination", "exchange"), "string"),
            "minute_ms": "long",
            "verdict": "string",
            "messages": "long",
        },
    )


def _of_messages(messages: DataFrame) -> DataFrame:
    """Count by verdict, and by secondary outcomes: `redelivered`, `suppressed`, ..."""
    extras = """
        stack(7,
            verdict, 1L,
            'leaked duplicate', CASE WHEN verdict = 'unexpected' THEN 0L
                ELSE CAST(leaked AS BIGINT) END,
            'redelivered', CAST(redelivered AS BIGINT),
            'repaired', CAST(repaired AS BIGINT),
            'suppressed', CAST(duplicates AS BIGINT)
                - CASE WHEN verdict IN ('suppressed', 'lost', 'unproven') THEN 1 ELSE 0 END,
            'altered', CAST(altered AS BIGINT),
            'reordered', CAST(reordered AS BIGINT)) AS (verdict, count)
    """
    return messages.selectExpr(
        "origin",
        "at AS destination",
        "exchange",
        "published_ms DIV 60000 * 60000 AS minute_ms",
        extras,
    ).where("count > 0")


DISPLAYED = 200
"""Most findings of a kind that the report itself shows."""


def displayed_findings(found: DataFrame) -> list[dict[str, Any]]:
    """Return the first findings of each kind. `found`: the table of findings. Times in ms."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    by = ("published", "identity", "destination")
    of_kind = Window.partitionBy("kind").orderBy(*by)
    return [
        row.asDict()
        for row in found.withColumn("nth", F.row_number().over(of_kind))
        .where(f"nth <= {DISPLAYED}")
        .drop("nth")
        .orderBy("kind", *by)
        .withColumn("published", F.expr("unix_millis(published)"))
        .withColumn("delivered", F.expr("unix_millis(delivered)"))
        .collect()
    ]
