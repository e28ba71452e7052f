"""The ledgers' rows as batches: what was packed, and what each site did with it, a row a batch.

Of the packed columns only hashes go on from here: two of 64 bits over all identities of a row, two
over its contents. A batch that every site settled whole and alike is proven by them, identity for
identity, without one being opened; only the others are (`entries`).

A message that travels in pieces counts as one batch, named as its first piece.
"""

from __future__ import annotations

from typing import Any

from spark_audit.positions import SEQUENCE_BITS

_MESSAGES = "kind IN ('messages', 'fragment', 'repair')"
NAME = (
    "xxhash64(origin, incarnation, exchange, lane, array_join(destinations, ',')) AS series",
    "sequence - coalesce(fragment, 0) AS sequence",
    "array_join(destinations, ',') AS addressed",
)
"""(series, sequence) names a batch here."""
SAID = (
    *("origin", "incarnation", "exchange", "lane", "destinations", "revision", "path"),
    "unix_millis(recorded) AS recorded_ms",
    "unix_millis(first_published) AS first_ms",
    "unix_millis(last_published) AS last_ms",
)


def _all(outcome: int) -> str:
    """Whether all outcomes of a row are this one, without a flag."""
    return (
        f"outcomes IS NOT NULL AND outcomes ="
        f" substring(CAST(unhex('{outcome:02x}' || repeat('{outcome:02x}', 8191)) AS BINARY),"
        f" 1, count)"
    )


def packed_rows(rows: Any) -> Any:
    """One row a batch: its name, what its header says, hashes, and its packed columns. Of pieces,
    the first stands for all; `piece` tells them apart.
    """
    return rows.where(f"stage = 'packed' AND event = 'batch' AND {_MESSAGES}").selectExpr(
        *NAME,
        *SAID,
        "incarnation_sequence",
        "coalesce(fragment, 0) AS piece",
        "fragment IS NOT NULL AS in_pieces",
        "count",
        "identities",
        "published",
        "xxhash64(identities) AS identities_1",
        "xxhash64(7, identities) AS identities_2",
    )


def settled_rows(rows: Any, cluster_of: Any) -> Any:
    """What deliverers wrote: rows of messages, and of batches that do not count. `cluster_of`: site
    name -> cluster ID, as an expression over the column `site`.
    """
    return (
        rows.where(
            "stage = 'delivered' AND "
            "event IN ('batch', 'void', 'quarantined', 'retried', 'dropped') AND origin IS NOT NULL"
            f" AND (kind IS NULL OR {_MESSAGES})"
        )
        .withColumn("at", cluster_of)
        .selectExpr(
            *NAME,
            *SAID,
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
            f"event = 'batch' AND first_entry = 0 AND {_all(1)} AS is_clean",
            f"event = 'batch' AND first_entry = 0 AND {_all(7)} AS is_own",
            "xxhash64(identities) AS identities_1",
            "xxhash64(7, identities) AS identities_2",
            "xxhash64(contents) AS contents_1",
            "xxhash64(7, contents) AS contents_2",
        )
    )


def ranked(packed: Any, ranks: Any) -> Any:
    """With `place`: where the batch stands among all of its origin. `ranks`: origin, incarnation,
    rank.
    """
    from pyspark.sql import functions as F  # noqa: N812

    return (
        packed.join(F.broadcast(ranks), ["origin", "incarnation"], "left")
        .withColumn("place", F.expr(f"shiftleft(rank, {SEQUENCE_BITS}) | incarnation_sequence"))
        .drop("rank")
    )


def together(packed: Any, settled: Any) -> Any:
    """One row a batch with what every site did: `packs` (how often it was packed, pieces aside),
    the header of the packed row, `places` (an array, of each row of a deliverer).
    """
    from pyspark.sql import functions as F  # noqa: N812

    thin = packed.selectExpr(
        "series",
        "sequence",
        "origin",
        "exchange",
        "lane",
        "addressed",
        "first_ms",
        "last_ms",
        "struct(piece, place, first_ms, last_ms, count, in_pieces, identities_1, identities_2,"
        " revision) AS sent",
        "CAST(NULL AS STRUCT<at: STRING, is_clean: BOOLEAN, is_own: BOOLEAN, count: INT,"
        " identities_1: BIGINT, identities_2: BIGINT, contents_1: BIGINT, contents_2: BIGINT,"
        " recorded_ms: BIGINT, last_ms: BIGINT>) AS done",
    ).unionByName(
        settled.selectExpr(
            "series",
            "sequence",
            "origin",
            "exchange",
            "lane",
            "addressed",
            "first_ms",
            "last_ms",
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
            F.count("sent").alias("rows_sent"),
            F.collect_list("done").alias("places"),
        )
        .withColumn(
            "packs", F.expr("CASE WHEN sent.in_pieces THEN least(rows_sent, 1) ELSE rows_sent END")
        )
        .withColumn("revision", F.col("sent.revision"))
    )


def judged_whole(batches: Any, from_ms: int, to_ms: int) -> Any:
    """With `is_whole`: packed once, published within one minute of the period, settled at just the
    sites that were to get it, by each in one row, every message delivered once without a flag, the
    same identities and contents everywhere, none late. Needs `expected` and `deadline_ms`.
    """
    from pyspark.sql import functions as F  # noqa: N812

    same = f"""
        packs = 1 AND NOT sent.in_pieces AND expected IS NOT NULL
        AND sent.first_ms DIV 60000 = sent.last_ms DIV 60000
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


def cluster_column(clusters: dict[str, str]) -> Any:
    """Site name -> cluster ID as an expression; a site that no revision knows stays itself."""
    from pyspark.sql import functions as F  # noqa: N812

    pairs = [F.lit(part) for name, cluster in clusters.items() for part in (name, cluster)]
    if not pairs:
        return F.col("site")
    return F.coalesce(F.create_map(*pairs)[F.col("site")], F.col("site"))
