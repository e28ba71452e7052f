"""The findings that the report itself shows, of all that stand in the table."""

from __future__ import annotations

from typing import Any

SHOWN = 200
"""Of a kind."""


def shown(found: Any) -> list[dict[str, Any]]:
    """`found`: the table of findings, as a DataFrame. Times in ms."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    by = ("published", "identity", "destination")
    of_kind = Window.partitionBy("kind").orderBy(*by)
    return [
        row.asDict()
        for row in found.withColumn("nth", F.row_number().over(of_kind))
        .where(f"nth <= {SHOWN}")
        .drop("nth")
        .orderBy("kind", *by)
        .withColumn("published", F.expr("unix_millis(published)"))
        .withColumn("delivered", F.expr("unix_millis(delivered)"))
        .collect()
    ]
