"""Digest of all ledger files: the rows of each file summed up by flow and minute.

Only thin columns are read, none about a single message. The digest shows the files' rows, the
sites' positions and the *blocks* that add up; rows are read again only where the digest does not
suffice.

A block holds all batches of a series whose first messages were published in one minute, and whose
last messages in one minute; batches that reach into the next minute form another block. Every row
of a batch has the times of the batch's header, so that all of them fall into the same block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_audit.compare.batches import ADDRESSED, IS_LOOPED, MESSAGES, SERIES
from spark_audit.ledgers.books import FileRows
from spark_audit.ledgers.source import FILE_URI, RAW_URI, LedgerSource

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BLOCK = ("series", "first_minute", "last_minute")
"""Columns that name a block."""
_WHOSE = ("uri", "site", "state", "stage", "event")
_FLOW = (*("origin", "incarnation", "exchange", "lane", "destinations"), "revision", "is_message")
_LINKS = ("linked_in", "linked_out")
_OF_A_ROW = (
    "number",
    "unix_millis(recorded) AS recorded_ms",
    "unix_millis(first_published) AS first_ms",
    "unix_millis(last_published) AS last_ms",
    f"{IS_LOOPED} AS is_looped",
)
OF_LINKS = f"stage IN {_LINKS!r} AND series IS NULL"
"""SQL: true for a digest row that sums up all flows of a link's file."""


def digest(source: LedgerSource, *, links_by_flow: bool) -> DataFrame:
    """Return one row per file, stage, event and block, read leniently. Links' rows are more than
    half of all and are not summed: unless `links_by_flow`, they come to one row per file and event,
    with the range of publishing times.
    """
    of_links = {file.uri for file in source.files if file.stage in _LINKS and not links_by_flow}
    others = {file.uri for file in source.files} - of_links
    by_flow = _by_flow(source.rows(only=others, lenient=True))
    of_files = _by_file(source.rows(only=of_links, lenient=True))
    table = by_flow.unionByName(of_files, allowMissingColumns=True)
    # Once per row of the digest: decoding a name costs more than the rest of a file's row.
    return table.selectExpr(
        *(f"{FILE_URI} AS uri" if one == "uri" else one for one in table.columns)
    )


def _by_flow(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    columns = rows.selectExpr(
        f"{RAW_URI} AS uri",
        *_WHOSE[1:],
        "origin",
        "incarnation",
        "exchange",
        "lane",
        "destinations",
        "revision",
        f"coalesce({MESSAGES}, false) AS is_message",
        _minute("first_published", "first_minute"),
        _minute("last_published", "last_minute"),
        *_OF_A_ROW,
        "incarnation_sequence",
        "CASE WHEN stage = 'packed' THEN unix_millis(through) END AS through_ms",
        "count",
        "delivered_count",
        "identity_sum_1",
        "identity_sum_2",
        "content_sum",
        "kind = 'repair' AS is_repair",
        "size(path) > 1 AS is_from_elsewhere",
    )
    return (
        columns.groupBy(*_WHOSE, *_FLOW, *BLOCK[1:])
        .agg(
            *_of_rows(),
            F.max("incarnation_sequence").alias("last_sequence"),
            F.max("through_ms").alias("through_ms"),
            F.sum("count").alias("messages"),
            F.sum("delivered_count").alias("counted"),
            F.count("delivered_count").alias("rows_with_sums"),
            F.sum("identity_sum_1").alias("identity_sum_1"),
            F.sum("identity_sum_2").alias("identity_sum_2"),
            F.sum("content_sum").alias("content_sum"),
            F.max(F.expr("recorded_ms - first_ms")).alias("longest_ms"),
            F.max("is_repair").alias("has_repair"),
            F.max("is_from_elsewhere").alias("has_from_elsewhere"),
        )
        .withColumn("series", F.expr(SERIES))
        .withColumn("addressed", F.expr(ADDRESSED))
    )


def _by_file(rows: DataFrame) -> DataFrame:
    columns = rows.selectExpr(f"{RAW_URI} AS uri", *_WHOSE[1:], *_OF_A_ROW)
    return columns.groupBy(*_WHOSE).agg(*_of_rows())


def _of_rows() -> list[Column]:
    """Return the aggregates that every file has."""
    from pyspark.sql import functions as F  # noqa: N812

    return [
        F.count("number").alias("rows"),
        F.min("number").alias("first_number"),
        F.max("number").alias("last_number"),
        F.min("recorded_ms").alias("from_ms"),
        F.max("recorded_ms").alias("to_ms"),
        F.min("first_ms").alias("first_ms"),
        F.max("last_ms").alias("last_ms"),
        F.max("is_looped").alias("has_loop"),
    ]


def _minute(column: str, name: str) -> str:
    """Return SQL of the minute, for the two stages whose sums are compared; elsewhere minutes would
    multiply the rows.
    """
    return (
        f"CASE WHEN stage IN ('packed', 'delivered')"
        f" THEN unix_millis({column}) DIV 60000 END AS {name}"
    )


def without_files(table: DataFrame, uris: list[str]) -> DataFrame:
    """Return the digest without the rows of `uris`."""
    from pyspark.sql import functions as F  # noqa: N812

    return table.where(~F.col("uri").isin(*uris)) if uris else table


def uris_of(table: DataFrame, blocks: DataFrame) -> set[str]:
    """Return files that have rows of batches in these blocks or overlapping ones: an operator's row
    about one message has the time of the message.
    """
    from pyspark.sql import functions as F  # noqa: N812

    wanted = blocks.selectExpr(
        *("series AS of_series", "first_minute AS from_minute", "last_minute AS to_minute")
    ).distinct()
    is_wanted = "series = of_series AND first_minute <= to_minute AND last_minute >= from_minute"
    here = table.join(F.broadcast(wanted), F.expr(is_wanted), "left_semi")
    return {row[0] for row in here.select("uri").distinct().collect()}


def file_rows(table: DataFrame) -> list[FileRows]:
    """Return the range, count and times of each file's rows, from the digest, for `judge_books`."""
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
            F.max(F.expr("CASE WHEN event = 'ended' THEN last_number ELSE -1 END"))
            == F.max("last_number"),
        )
        .collect()
    ]
