"""What each file says of its own rows: what the books are judged by."""

from __future__ import annotations

from typing import Any

from spark_audit.ledgers.books import FileRows


def file_rows(table: Any) -> list[FileRows]:
    """Of the digest."""
    from pyspark.sql import functions as F  # noqa: N812

    return [
        FileRows(*row)
        for row in table.groupBy("uri", "site", "state", "stage")
        .agg(
            F.min("first_number"),
            F.max("last_number"),
            F.sum("rows"),
            F.min("from_ms"),
            F.max("to_ms"),
            F.coalesce(F.max("through_ms"), F.lit(-1)),
        )
        .collect()
    ]
