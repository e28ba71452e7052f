"""Open batches: every packed message, and every outcome of a message at a site.

Only batches that do not add up are opened, a few rows on a good day. Spark's own functions read the
packed columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay.ledger.rows import (
    CONFLICT,
    CONTENT_BYTES,
    IDENTITY_BYTES,
    OFFSET_BYTES,
    OUTCOME_MASK,
    REDELIVERED,
    REPAIRED,
    Outcome,
)
from spark_audit.judge.expectation import ExchangesWhere

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_OF_ITS_BATCH = (
    *("series", "sequence", "whose AS origin", "is_repair", "incarnation"),
    *("exchange", "lane", "destinations"),
)
"""Columns that a message takes over from its batch."""
_MESSAGE = ("exchange", "scope", "identity")
_IS_OWN = f"outcome = {int(Outcome.OWN)}"


def scope_column(by_origin: ExchangesWhere) -> str:
    """Return SQL of the scope of an identity besides its exchange: the origin, or nothing, by the
    batch's revision. `whose` is the origin of a repair's messages; the repair's batch is of the
    site that repaired.
    """
    return f"CASE WHEN {by_origin.holds()} THEN whose ELSE '' END"


def _widest_scope(by_origin: ExchangesWhere, whose: str) -> str:
    """Return SQL of the scope that holds in every revision, so that messages which may be the same
    are compared.
    """
    return f"CASE WHEN {by_origin.always_holds()} THEN {whose} ELSE '' END"


def repeated_identities(
    packed: DataFrame, settled: DataFrame, by_origin: ExchangesWhere, partitions: int
) -> DataFrame:
    """Return hashes (`known_as`) of identities that are packed in more than one place, or delivered
    at another place than packed. `settled`: rows of batches that differ. `partitions`: number of
    partitions of the search.
    """
    from pyspark.sql import functions as F  # noqa: N812

    places = _hashed(packed, by_origin, "0").unionByName(
        _hashed(settled, by_origin, "coalesce(first_entry, 0)")
    )
    return (
        # Nearly no hash repeats: partial sums before the shuffle would only cost a table.
        places.repartition(partitions, "known_as")
        .groupBy("known_as")
        .agg(F.min("stands_at").alias("a"), F.max("stands_at").alias("b"))
        .where("a <> b")
        .select("known_as")
    )


def known_as_of(messages: DataFrame, by_origin: ExchangesWhere) -> DataFrame:
    """Return the hash of each message, as in `repeated_identities`."""
    scope = _widest_scope(by_origin, "origin")
    return messages.selectExpr(
        f"{_known_as(f'xxhash64(exchange, {scope})', 'identity')} AS known_as"
    )


def batches_with(
    rows: DataFrame, by_origin: ExchangesWhere, known_as: DataFrame, *, are_few: bool = True
) -> DataFrame:
    """Return names of the batches whose rows have one of the hashes. `are_few`: True to send all
    hashes to every task.
    """
    from pyspark.sql import functions as F  # noqa: N812

    return (
        _hashed(rows, by_origin, "0", "series", "sequence")
        .join(F.broadcast(known_as) if are_few else known_as, "known_as", "left_semi")
        .select("series", "sequence")
        .distinct()
    )


def _hashed(rows: DataFrame, by_origin: ExchangesWhere, first: str, *columns: str) -> DataFrame:
    return (
        rows.where("identities IS NOT NULL")
        .selectExpr(
            *columns,
            # Once a batch, so that the hash of each message is of a number and 16 bytes.
            f"xxhash64(exchange, {_widest_scope(by_origin, 'whose')}) AS within",
            "identities",
            f"xxhash64(series, sequence) + {first} AS batch",
            "explode(sequence(0, count - 1)) AS i",
        )
        .selectExpr(
            *columns,
            f"{_known_as('within', _slice('identities', IDENTITY_BYTES))} AS known_as",
            "batch + i AS stands_at",
        )
    )


def _known_as(within: str, identity: str) -> str:
    return f"xxhash64({within}, {identity})"


def sent_entries(packed: DataFrame, by_origin: ExchangesWhere) -> DataFrame:
    """Return one row per message and batch; a message in pieces has one row in all."""
    return (
        packed.where("piece = 0")
        .withColumn("i", _numbers())
        .selectExpr(
            *_OF_ITS_BATCH,
            f"{scope_column(by_origin)} AS scope",
            "i AS entry",
            f"{_slice('identities', IDENTITY_BYTES)} AS identity",
            f"first_ms + coalesce({offset_at('published')}, 0) AS published_ms",
        )
    )


def settled_entries(settled: DataFrame, by_origin: ExchangesWhere) -> DataFrame:
    """Return one row per action of a deliverer on a message."""
    byte = f"CAST(conv(hex({_slice('outcomes', 1)}), 16, 10) AS INT)"
    return (
        settled.where("identities IS NOT NULL AND count > 0")
        .withColumn("i", _numbers())
        .selectExpr(
            *_OF_ITS_BATCH,
            f"{scope_column(by_origin)} AS scope",
            "at",
            "state",
            "number",
            "event",
            "revision",
            "first_entry + i AS entry",
            f"{_slice('identities', IDENTITY_BYTES)} AS identity",
            f"first_ms + coalesce({offset_at('published')}, 0) AS published_ms",
            f"recorded_ms + coalesce({offset_at('delivered')}, 0) AS delivered_ms",
            f"{_slice('contents', CONTENT_BYTES)} AS content",
            f"{byte} & {OUTCOME_MASK} AS outcome",
            f"({byte} & {REDELIVERED}) <> 0 AS is_flagged",
            f"({byte} & {CONFLICT}) <> 0 AS is_conflict",
            f"({byte} & {REPAIRED}) <> 0 AS is_repaired",
        )
    )


def with_scope_of(settled: DataFrame, sent: DataFrame) -> DataFrame:
    """Give repairs and operators' rows the scope of the packed message, where an exchange's scope
    has changed: a repair has the revision of its own time, an operator's row none.
    """
    from pyspark.sql import functions as F  # noqa: N812

    packed = (
        sent.where("NOT is_repair")
        .groupBy("exchange", "origin", "identity")
        .agg(F.min("scope").alias("packed_scope"))
    )
    borrowed = "CASE WHEN is_repair OR revision IS NULL THEN packed_scope END"
    return (
        settled.join(packed, ["exchange", "origin", "identity"], "left")
        .withColumn("scope", F.expr(f"coalesce({borrowed}, scope)"))
        .drop("packed_scope")
    )


def with_altered(settled: DataFrame) -> DataFrame:
    """Add `is_altered`: delivered with other content than any origin's barrier recorded for the
    message, in whatever batch (a repair's batch has no such row), or else than most sites recorded.
    """
    from pyspark.sql import functions as F  # noqa: N812

    known = (
        settled.where("content IS NOT NULL")
        .groupBy(*_MESSAGE)
        .agg(
            F.collect_set(F.expr(f"CASE WHEN {_IS_OWN} THEN content END")).alias("own_contents"),
            F.expr("mode(content)").alias("usual_content"),
        )
        .selectExpr(
            *_MESSAGE,
            "CASE WHEN size(own_contents) > 0 THEN own_contents"
            " ELSE array(usual_content) END AS right_contents",
        )
    )
    return (
        settled.join(known, [*_MESSAGE], "left")
        .withColumn(
            "is_altered",
            F.expr(
                f"coalesce(outcome = {int(Outcome.DELIVERED)} AND NOT is_conflict"
                " AND NOT array_contains(right_contents, content), false)"
            ),
        )
        .drop("right_contents")
    )


def conflicting(settled: DataFrame) -> DataFrame:
    """Return identities (`exchange`, `scope`, `identity`) that origins' own barriers recorded with
    several contents.
    """
    from pyspark.sql import functions as F  # noqa: N812

    return (
        settled.where(_IS_OWN)
        .groupBy(*_MESSAGE)
        .agg(F.min("content").alias("least"), F.max("content").alias("greatest"))
        .where("least <> greatest")
        .select(*_MESSAGE)
    )


def with_variants(
    sent: DataFrame, settled: DataFrame, conflicts: DataFrame
) -> tuple[DataFrame, DataFrame]:
    """Add `variant` to both tables: the content that distinguishes messages under one identity
    (`conflicts`), else null. A packed message takes its variant from the origin's row, else from
    most sites; a message that arrived altered takes the variant of its place.
    """
    from pyspark.sql import functions as F  # noqa: N812

    here = ("series", "sequence", "entry", "identity")
    recorded = settled.where("content IS NOT NULL").join(conflicts, [*_MESSAGE], "left_semi")
    own = F.expr(f"CASE WHEN {_IS_OWN} THEN content END")
    known = recorded.groupBy(*_MESSAGE).agg(F.collect_set(own).alias("own_contents"))
    placed = recorded.groupBy(*here).agg(
        F.coalesce(F.max(own), F.expr("mode(content)")).alias("variant")
    )
    return (
        sent.join(placed, [*here], "left"),
        settled.join(known, [*_MESSAGE], "left")
        .join(placed, [*here], "left")
        .withColumn(
            "variant",
            F.expr("CASE WHEN array_contains(own_contents, content) THEN content ELSE variant END"),
        )
        .drop("own_contents"),
    )


def _numbers() -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.explode(F.expr("sequence(0, count - 1)"))


def _slice(column: str, size: int) -> str:
    return f"substring({column}, {size} * i + 1, {size})"


def offset_at(column: str, i: str = "i") -> str:
    """Return SQL of a signed little-endian offset of four bytes; null beyond the column's end."""
    backwards = ", ".join(
        f"substring({column}, {OFFSET_BYTES} * {i} + {byte}, 1)" for byte in (4, 3, 2, 1)
    )
    number = f"CAST(conv(nullif(hex(concat({backwards})), ''), 16, 10) AS BIGINT)"
    return f"(({number} + 2147483648) % 4294967296 - 2147483648)"
