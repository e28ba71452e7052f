"""Opens batches: message for message what was packed, and what became of it at each site.

Only what does not add up as a whole is opened, so that these are few rows on a good day. The packed
columns are read with Spark's own functions.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from relay.ledger.rows import (
    CONFLICT,
    CONTENT_BYTES,
    IDENTITY_BYTES,
    OFFSET_BYTES,
    OUTCOME_MASK,
    REDELIVERED,
    Outcome,
)


def scope_column(by_origin: Collection[str]) -> str:
    """Within what an identity is unique, besides its exchange: its origin, or nothing."""
    if not by_origin:
        return "''"
    names = ", ".join(
        "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'" for name in by_origin
    )
    return f"CASE WHEN exchange IN ({names}) THEN origin ELSE '' END"


def repeated_identities(packed: Any, settled: Any, by_origin: Collection[str]) -> Any:
    """Hashes (`known_as`) of identities that stand in more than one place of what was packed, or
    was delivered otherwise than packed. `settled` are the rows of batches that differ.
    """
    from pyspark.sql import functions as F  # noqa: N812

    places = _hashed(packed, by_origin, "0").unionByName(
        _hashed(settled, by_origin, "coalesce(first_entry, 0)")
    )
    return (
        places.groupBy("known_as")
        .agg(F.min("stands_at").alias("a"), F.max("stands_at").alias("b"))
        .where("a <> b")
        .select("known_as")
    )


def batches_with(rows: Any, by_origin: Collection[str], known_as: Any) -> Any:
    """Names of the batches in whose rows one of these identities stands."""
    from pyspark.sql import functions as F  # noqa: N812

    return (
        _hashed(rows, by_origin, "0", "series", "sequence")
        .join(F.broadcast(known_as), "known_as", "left_semi")
        .select("series", "sequence")
        .distinct()
    )


def _hashed(rows: Any, by_origin: Collection[str], first: str, *columns: str) -> Any:
    return (
        rows.where("identities IS NOT NULL")
        .selectExpr(
            *columns,
            "exchange",
            f"{scope_column(by_origin)} AS scope",
            "identities",
            "xxhash64(series, sequence) AS batch",
            f"{first} AS first",
            "explode(sequence(0, count - 1)) AS i",
        )
        .selectExpr(
            *columns,
            f"xxhash64(exchange, scope, {_slice('identities', IDENTITY_BYTES)}) AS known_as",
            "batch + first + i AS stands_at",
        )
    )


def sent_entries(packed: Any, by_origin: Collection[str]) -> Any:
    """One row a message and batch: of a message in pieces, one in all."""
    return (
        packed.where("piece = 0")
        .withColumn("i", _numbers())
        .selectExpr(
            "series",
            "sequence",
            "origin",
            "incarnation",
            "exchange",
            "lane",
            "destinations",
            f"{scope_column(by_origin)} AS scope",
            "i AS entry",
            f"{_slice('identities', IDENTITY_BYTES)} AS identity",
            f"first_ms + coalesce({_offset('published')}, 0) AS published_ms",
        )
    )


def settled_entries(settled: Any, by_origin: Collection[str]) -> Any:
    """One row for each thing that a deliverer did with a message."""
    byte = f"CAST(conv(hex({_slice('outcomes', 1)}), 16, 10) AS INT)"
    return (
        settled.where("identities IS NOT NULL AND count > 0")
        .withColumn("i", _numbers())
        .selectExpr(
            "series",
            "sequence",
            "origin",
            "incarnation",
            "exchange",
            "lane",
            "destinations",
            f"{scope_column(by_origin)} AS scope",
            "at",
            "state",
            "number",
            "event",
            "first_entry + i AS entry",
            f"{_slice('identities', IDENTITY_BYTES)} AS identity",
            f"first_ms + coalesce({_offset('published')}, 0) AS published_ms",
            f"recorded_ms + coalesce({_offset('delivered')}, 0) AS delivered_ms",
            f"{_slice('contents', CONTENT_BYTES)} AS content",
            f"{byte} & {OUTCOME_MASK} AS outcome",
            f"({byte} & {REDELIVERED}) <> 0 AS is_flagged",
            f"({byte} & {CONFLICT}) <> 0 AS is_conflict",
        )
    )


def with_altered(settled: Any) -> Any:
    """With `is_altered`: delivered with other content than the origin's own barrier saw, or, where
    that says nothing, than most sites.
    """
    from pyspark.sql import functions as F  # noqa: N812

    own = f"CASE WHEN outcome = {int(Outcome.OWN)} THEN content END"
    known = (
        settled.where("content IS NOT NULL")
        .groupBy("series", "sequence", "entry", "identity")
        .agg(
            F.coalesce(F.max(F.expr(own)), F.expr("mode(content)")).alias("right_content"),
        )
    )
    return settled.join(known, ["series", "sequence", "entry", "identity"], "left").withColumn(
        "is_altered",
        F.expr(
            f"coalesce(outcome = {int(Outcome.DELIVERED)} AND NOT is_conflict"
            " AND content <> right_content, false)"
        ),
    )


def _numbers() -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    return F.explode(F.expr("sequence(0, count - 1)"))


def _slice(column: str, size: int) -> str:
    return f"substring({column}, {size} * i + 1, {size})"


def _offset(column: str) -> str:
    """Four bytes, the lowest first, as a number with a sign; null beyond the column's end."""
    backwards = ", ".join(
        f"substring({column}, {OFFSET_BYTES} * i + {byte}, 1)" for byte in (4, 3, 2, 1)
    )
    number = f"CAST(conv(nullif(hex(concat({backwards})), ''), 16, 10) AS BIGINT)"
    return f"(({number} + 2147483648) % 4294967296 - 2147483648)"
