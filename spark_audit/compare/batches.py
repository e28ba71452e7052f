"""Ledger rows as batches: a row for each packed batch, and a row for each settlement at a site.

The packed columns are reduced to hashes: two of 64 bits over all identities of a row, two over its
contents. The hashes prove a batch that every site settled whole and alike, identity for identity,
without opening; only other batches are opened (`entries`). Pieces of one message count as one
batch, named as the first piece. Order and loops follow from rows as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_audit.judge.positions import SEQUENCE_BITS
from spark_audit.level import Level

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MESSAGES = "kind IN ('messages', 'fragment', 'repair')"
ADDRESSED = "array_join(destinations, ',')"
SERIES = f"xxhash64(origin, incarnation, exchange, lane, {ADDRESSED})"
NAME = (
    f"{SERIES} AS series",
    "sequence - coalesce(fragment, 0) AS sequence",
    f"{ADDRESSED} AS addressed",
)
"""Expressions of a batch's name (series, sequence) within an audit."""
HEADER = (
    *("origin", "incarnation", "exchange", "lane", "destinations", "revision", "path"),
    "coalesce(kind = 'repair', false) AS is_repair",
    "CASE WHEN kind = 'repair' THEN coalesce(position, origin) ELSE origin END AS whose",
    "unix_millis(recorded) AS recorded_ms",
    "unix_millis(first_published) AS first_ms",
    "unix_millis(last_published) AS last_ms",
)


def _all(outcome: int) -> str:
    """Return SQL: true if all outcomes of a row are `outcome`, without a flag."""
    return (
        f"outcomes IS NOT NULL AND outcomes ="
        f" substring(CAST(unhex('{outcome:02x}' || repeat('{outcome:02x}', 8191)) AS BINARY),"
        f" 1, count)"
    )


_HASHES = {
    Level.EXACT: (
        "xxhash64(identities) AS identities_1",
        "xxhash64(7, identities) AS identities_2",
        "xxhash64(contents) AS contents_1",
        "xxhash64(7, contents) AS contents_2",
    ),
    Level.FINGERPRINT: (
        "identity_sum_1 AS identities_1",
        "identity_sum_2 AS identities_2",
        "content_sum AS contents_1",
        "content_sum AS contents_2",
    ),
}


def packed_rows(rows: DataFrame, level: Level) -> DataFrame:
    """Return one row per packed batch: name, header, hashes and packed columns. Pieces keep rows of
    their own, told apart by `piece`; the first stands for all.
    """
    return rows.where(f"stage = 'packed' AND event = 'batch' AND {MESSAGES}").selectExpr(
        *NAME,
        *HEADER,
        "incarnation_sequence",
        "coalesce(fragment, 0) AS piece",
        "fragment IS NOT NULL AS in_pieces",
        "pieces",
        "count",
        "identities",
        "published",
        *_HASHES[level][:2],
    )


def settled_rows(rows: DataFrame, cluster_of: Column, level: Level) -> DataFrame:
    """Return the deliverers' rows of messages and of batches that do not count. `cluster_of`:
    cluster ID as an expression over the column `site`.
    """
    plain = "event = 'batch' AND first_entry = 0"
    is_clean, is_own = f"{plain} AND {_all(1)}", f"{plain} AND {_all(7)}"
    if level is Level.FINGERPRINT:
        # Sums cover delivered messages only; a site's own rows have no path from elsewhere.
        counted = "event = 'batch' AND coalesce(delivered_count = count, false)"
        own = "at = origin AND size(path) <= 1"
        is_clean, is_own = f"{counted} AND NOT ({own})", f"{counted} AND {own}"
    return (
        rows.where(
            "stage = 'delivered' AND "
            "event IN ('batch', 'void', 'quarantined', 'retried', 'dropped') AND origin IS NOT NULL"
            f" AND (kind IS NULL OR {MESSAGES})"
        )
        .withColumn("at", cluster_of)
        .selectExpr(
            *NAME,
            *HEADER,
            "incarnation_sequence",
            "at",
            "site",
            "state",
            "number",
            "event",
            "first_entry",
            "count",
            "identities",
            "contents",
            "outcomes",
            "published",
            "delivered",
            f"{is_clean} AS is_clean",
            f"{is_own} AS is_own",
            *_HASHES[level],
        )
    )


def blocks_of(batches: DataFrame) -> DataFrame:
    """Return the blocks (`digest`) of these batches."""
    return batches.selectExpr(
        "series", "first_ms DIV 60000 AS first_minute", "last_ms DIV 60000 AS last_minute"
    ).distinct()


def of_blocks(rows: DataFrame, blocks: DataFrame) -> DataFrame:
    """Return the packed or settled rows whose batches lie in `blocks`."""
    from pyspark.sql import functions as F  # noqa: N812

    return (
        rows.withColumn("first_minute", F.expr("first_ms DIV 60000"))
        .withColumn("last_minute", F.expr("last_ms DIV 60000"))
        .join(F.broadcast(blocks), ["series", "first_minute", "last_minute"], "left_semi")
        .drop("first_minute", "last_minute")
    )


def ranked(packed: DataFrame, ranks: DataFrame) -> DataFrame:
    """Add `place`, the batch's position among all of its origin. `ranks`: origin, incarnation,
    rank.
    """
    from pyspark.sql import functions as F  # noqa: N812

    return (
        packed.join(F.broadcast(ranks), ["origin", "incarnation"], "left")
        .withColumn("place", F.expr(f"shiftleft(rank, {SEQUENCE_BITS}) | incarnation_sequence"))
        .drop("rank")
    )


def together(packed: DataFrame, settled: DataFrame) -> DataFrame:
    """Join packed and settled rows, one row per batch: the packed header, `packs` (number of
    packings; pieces count once), `places` (an array of the deliverers' rows).
    """
    from pyspark.sql import functions as F  # noqa: N812

    header = (
        "series",
        "sequence",
        "origin",
        "exchange",
        "lane",
        "addressed",
        "first_ms",
        "last_ms",
    )
    thin = packed.selectExpr(
        *header,
        "struct(piece, place, first_ms, last_ms, count, in_pieces, pieces, is_repair,"
        " identities_1, identities_2, revision) AS sent",
        "CAST(NULL AS STRUCT<at: STRING, is_clean: BOOLEAN, is_own: BOOLEAN, count: INT,"
        " identities_1: BIGINT, identities_2: BIGINT, contents_1: BIGINT, contents_2: BIGINT,"
        " recorded_ms: BIGINT, last_ms: BIGINT>) AS done",
    ).unionByName(
        settled.selectExpr(
            *header,
            "struct(at, is_clean, is_own, count, identities_1, identities_2, contents_1,"
            " contents_2, recorded_ms, last_ms) AS done",
        ),
        allowMissingColumns=True,
    )
    return (
        thin.groupBy("series", "sequence")
        .agg(
            F.first("origin").alias("origin"),
            F.first("exchange").alias("exchange"),
            F.first("lane").alias("lane"),
            F.first("addressed").alias("addressed"),
            F.min("first_ms").alias("first_ms"),
            F.max("last_ms").alias("last_ms"),
            F.min("sent").alias("sent"),  # the first piece
            F.max("sent.place").alias("place"),
            F.max("sent.piece").alias("last_piece"),
            F.count("sent").alias("rows_sent"),
            F.collect_list("done").alias("places"),
        )
        .withColumn(
            "packs", F.expr("CASE WHEN sent.in_pieces THEN least(rows_sent, 1) ELSE rows_sent END")
        )
        .withColumn("revision", F.col("sent.revision"))
        .withColumn("is_partial", F.expr("coalesce(last_piece + 1 < sent.pieces, false)"))
    )


def parts_together(settled: DataFrame) -> DataFrame:
    """Sum the commits of a batch at a site into one row, for the level of fingerprints."""
    from pyspark.sql import functions as F  # noqa: N812

    sums = ("count", "identities_1", "identities_2", "contents_1", "contents_2")
    return settled.groupBy("series", "sequence", "at").agg(
        *(F.first(one).alias(one) for one in ("origin", "exchange", "lane", "addressed")),
        F.min("first_ms").alias("first_ms"),
        F.max("last_ms").alias("last_ms"),
        F.max("recorded_ms").alias("recorded_ms"),
        F.min("is_clean").alias("is_clean"),
        F.min("is_own").alias("is_own"),
        *(F.sum(one).cast("int" if one == "count" else "long").alias(one) for one in sums),
    )


def judged_whole(batches: DataFrame, from_ms: int, to_ms: int, level: Level) -> DataFrame:
    """Add `is_whole`: packed once, no repair, published within the period, settled at exactly the
    expected sites, every message delivered once and in time, identities and contents alike
    everywhere. At the level *exact* also settled in one row at each site, without a flag,
    unfragmented and within one minute, so that counting by minute need not open the batch. Needs
    `expected` and `deadline_ms`.
    """
    from pyspark.sql import functions as F  # noqa: N812

    closely = """
        AND NOT sent.in_pieces AND sent.first_ms DIV 60000 = sent.last_ms DIV 60000
    """
    same = f"""
        packs = 1 AND sent.piece = 0 AND NOT is_partial AND NOT sent.is_repair
        AND expected IS NOT NULL
        {closely if level is Level.EXACT else ""}
        AND sent.first_ms >= {from_ms} AND sent.last_ms < {to_ms}
        AND array_sort(transform(filter(places, p -> NOT p.is_own), p -> p.at)) = expected
        AND forall(places, p -> (p.is_clean OR (p.is_own AND p.at = origin))
            AND p.count = sent.count
            AND p.identities_1 = sent.identities_1 AND p.identities_2 = sent.identities_2
            AND p.contents_1 <=> places[0].contents_1 AND p.contents_2 <=> places[0].contents_2
            AND (deadline_ms IS NULL OR p.recorded_ms - sent.first_ms <= deadline_ms))
        AND size(filter(places, p -> p.is_own)) <= 1
    """
    return batches.withColumn("is_whole", F.coalesce(F.expr(same), F.lit(False)))


_HAS_PLAIN = "is_clean OR hex(outcomes) RLIKE '^(?:..)*[014589CD]1'"
"""SQL: true if a message was delivered without a flag; flagged repeats may come late."""
IS_LOOPED = """(CASE size(path) WHEN 0 THEN false WHEN 1 THEN false WHEN 2 THEN path[0] = path[1]
    ELSE size(path) <> size(array_distinct(path)) END)"""
"""SQL: true if the batch had been at a site twice. Short paths, nearly all, cost a comparison."""


def overtaken_rows(settled: DataFrame, ranks: DataFrame) -> DataFrame:
    """Return (at, state, number) of rows that delivered messages behind later ones of the origin's
    log. Compared within one state folder, where `number` is the order.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    flow = Window.partitionBy("at", "state", "origin", "exchange", "lane").orderBy("number")
    before = flow.rowsBetween(Window.unboundedPreceding, -1)
    return (
        settled.where(f"event = 'batch' AND NOT is_own AND ({_HAS_PLAIN})")
        .join(F.broadcast(ranks), ["origin", "incarnation"])
        .selectExpr(
            *("at", "state", "number", "series", "sequence", "origin", "exchange", "lane"),
            "shiftleft(rank, 49) | shiftleft(incarnation_sequence, 9) | first_entry AS stands",
        )
        .withColumn("reached", F.max("stands").over(before))
        .where("stands < reached")
        .select("at", "state", "number", "series", "sequence")
    )


def looped_rows(rows: DataFrame) -> DataFrame:
    """Return rows of batches that had been at a site twice."""
    return rows.where(IS_LOOPED)
