"""How many messages have which verdict, by minute of publishing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from spark_audit.engine.frames import small_table
from spark_audit.report.report import PairMinute


def counts_by_minute(messages: Any, whole: Any) -> list[PairMinute]:
    """Of the messages that were opened, and of what is whole and was not: `origin`, `expected`,
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


def counts_table(spark: Any, counts: Iterable[PairMinute]) -> Any:
    """As a DataFrame."""
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


def _of_messages(messages: Any) -> Any:
    """Counts by verdict, and of what came besides: `redelivered`, `suppressed`, ..."""
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
"""Of a kind."""


def displayed_findings(found: Any) -> list[dict[str, Any]]:
    """`found`: the table of findings, as a DataFrame. Times in ms."""
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
