"""Blocks of batches compared by sums, of the digest alone: what adds up needs no further look.

The sums of a block's delivered rows at a site are those of its packed rows if every message was
delivered there once and no other was. They are sums of hashes, so that a loss and a duplicate do
not balance.
"""

from __future__ import annotations

from typing import Any

from spark_audit.compare.digest import BLOCK
from spark_audit.compare.premises import Premises

_SUMS = ("counted", "identity_sum_1", "identity_sum_2", "content_sum")
_EVENTS = "event IN ('batch', 'void', 'quarantined', 'retried', 'dropped')"
_KEY = ["revision", "exchange", "origin", "addressed"]


def judged_blocks(premises: Premises, table: Any, expected: Any) -> Any:
    """One row a block that may have messages of the period, with `is_whole`. `table`: the digest.
    `expected`: who is to get what, by revision, exchange, origin and addressed.
    """
    from pyspark.sql import functions as F  # noqa: N812

    per_site = (
        table.where(f"is_message AND stage IN ('packed', 'delivered') AND {_EVENTS}")
        .where(premises.touches_period())
        .withColumn("at", premises.cluster_of())
        .groupBy(*BLOCK, "stage", "at")
        .agg(
            *(F.first(one).alias(one) for one in ("origin", "exchange", "addressed")),
            F.min("revision").alias("revision"),
            F.max("revision").alias("other_revision"),
            F.min("first_ms").alias("first_ms"),
            F.max("last_ms").alias("last_ms"),
            F.max("longest_ms").alias("longest_ms"),
            *(F.sum(one).alias(one) for one in _SUMS),
            F.min(F.expr("event = 'batch' AND NOT has_repair AND rows = rows_with_sums")).alias(
                "is_plain"
            ),
            F.sum("messages").alias("messages"),
            F.max("has_from_elsewhere").alias("has_from_elsewhere"),
        )
        .withColumn(
            "of_site",
            F.expr(
                f"struct(at, {', '.join(_SUMS)}, longest_ms, is_plain AND (stage = 'packed' OR"
                " counted = messages AND NOT (at = origin AND has_from_elsewhere)) AS is_plain)"
            ),
        )
    )
    blocks = (
        per_site.groupBy(*BLOCK)
        .agg(
            *(F.first(one).alias(one) for one in ("origin", "exchange", "addressed")),
            F.min("revision").alias("revision"),
            F.max("other_revision").alias("other_revision"),
            F.min("first_ms").alias("first_ms"),
            F.max("last_ms").alias("last_ms"),
            F.collect_list(F.expr("CASE WHEN stage = 'packed' THEN of_site END")).alias("sent"),
            F.collect_list(F.expr("CASE WHEN stage = 'delivered' THEN of_site END")).alias("done"),
        )
        .join(F.broadcast(expected), _KEY, "left")
    )
    blocks = _with_early(premises, table, blocks)
    period = premises.period
    same = f"""
        size(sent) = 1 AND sent[0].at = origin AND sent[0].is_plain AND expected IS NOT NULL
        AND revision = other_revision
        AND NOT exists(early, e -> NOT array_contains(expected, e.at)
            AND e.first_ms <= last_ms AND e.last_ms >= first_ms)
        AND first_ms >= {period.from_ms} AND last_ms < {period.to_ms}
        AND array_sort(transform(filter(done, d -> d.at <> origin), d -> d.at)) = expected
        AND forall(done, d -> d.is_plain AND d.counted = sent[0].counted
            AND d.identity_sum_1 = sent[0].identity_sum_1
            AND d.identity_sum_2 = sent[0].identity_sum_2
            AND d.content_sum <=> done[0].content_sum
            AND (deadline_ms IS NULL OR d.at = origin OR d.longest_ms <= deadline_ms))
    """
    return blocks.withColumn("is_whole", F.coalesce(F.expr(same), F.lit(False)))


def _with_early(premises: Premises, table: Any, blocks: Any) -> Any:
    """With `early`: sites that begin at the start, and when what was for every site was published
    that links brought them of this series. Whether they were to have it, each batch has to tell:
    links' rows are not told apart by minute.
    """
    from pyspark.sql import functions as F  # noqa: N812

    begin = sorted(premises.revisions.begins_at_start)
    early = (
        table.where("stage = 'linked_in' AND event = 'batch' AND size(destinations) = 0")
        .withColumn("at", premises.cluster_of())
        .where(F.col("at").isin(*begin) if begin else F.lit(False))
        .where("at <> origin")
        .groupBy("series", "at")
        .agg(F.min("first_ms").alias("first_ms"), F.max("last_ms").alias("last_ms"))
        .groupBy("series")
        .agg(F.collect_list(F.struct("at", "first_ms", "last_ms")).alias("early"))
    )
    return blocks.join(F.broadcast(early), "series", "left").withColumn(
        "early",
        F.expr(
            "coalesce(early, filter(array(struct('' AS at, 0L AS first_ms, 0L AS last_ms)),"
            " e -> false))"
        ),
    )
