"""Open batches that do not add up, and judge each message by its expected and actual outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_audit.compare import entries
from spark_audit.compare.assumptions import Assumptions
from spark_audit.compare.reported_positions import passed_frame, ranks_frame, site_gaps_frame
from spark_audit.judge import verdicts
from spark_audit.judge.positions import SEQUENCE_BITS, Positions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME = ("series", "sequence")
"""Columns that name a batch."""
_SET_ASIDE = ("is_void", "is_refused", "is_disputed", "is_aside")


def opened_messages(
    assumptions: Assumptions,
    packed: DataFrame,
    settled: DataFrame,
    whole: DataFrame,
    odd: DataFrame,
    overtaken: DataFrame,
    positions: Positions,
) -> DataFrame:
    """Return one row per message, site and origin, judged, of the batches in `odd`: published in
    the period, or earlier and delivered too often. `whole`: all batches with their expected sites.
    `overtaken`: rows out of order.
    """
    from pyspark.sql import functions as F  # noqa: N812

    from spark_audit.judge import verdict_rules

    keep = assumptions.keep
    opened = keep(packed.join(odd, [*NAME], "left_semi"))
    done = keep(settled.join(odd, [*NAME], "left_semi"))
    sent = entries.sent_entries(opened, assumptions.by_origin)
    came = keep(entries.settled_entries(done, assumptions.by_origin))
    if assumptions.by_origin.at_times:
        came = keep(entries.with_scope_of(came, sent))
    conflicts = keep(entries.conflicting(came))
    if conflicts.head(1):
        sent, came = entries.with_variants(sent, came, conflicts)
    else:
        none = F.lit(None).cast("binary")
        sent, came = sent.withColumn("variant", none), came.withColumn("variant", none)
    came = _with_packed(entries.with_altered(came), opened, sent, overtaken)
    pairs = _pairs(
        assumptions,
        whole.join(odd, [*NAME], "left_semi"),
        positions,
        _set_aside(done, came),
    )
    messages = verdicts.by_message(
        # A repair is expected nowhere: its deliveries count for the published message.
        sent.where("NOT is_repair").join(pairs, [*NAME]),
        came.drop("revision", "batch_known", "late_row", "packed_as", "packed_times"),
    )
    lacking, renewed = assumptions.books.incomplete, assumptions.books.renewed
    judged = verdict_rules.judged(
        messages,
        verdict_rules.SiteKnowledge(
            incomplete_at=assumptions.is_one_of(
                "at", [s for s, stage in lacking if stage == "delivered"]
            ),
            renewed_at=assumptions.is_one_of(
                "at", [s for s, stage in renewed if stage == "delivered"]
            ),
            begun_at=assumptions.is_one_of("at", assumptions.books.begun),
            departed_at=assumptions.is_one_of("at", assumptions.former),
            incomplete_from=assumptions.is_one_of("origin", _lacking(assumptions, "packed")),
        ),
    )
    period = assumptions.period
    return judged.where(
        f"published_ms < {period.to_ms} AND (published_ms >= {period.from_ms} OR leaked > 0)"
    )


def _with_packed(
    came: DataFrame, opened: DataFrame, sent: DataFrame, overtaken: DataFrame
) -> DataFrame:
    """Add `is_known` and `is_reordered` by the message's place in its packed batch."""
    from pyspark.sql import functions as F  # noqa: N812

    sorts = sent.groupBy(*NAME, "identity").agg(
        F.min("entry").alias("packed_as"), F.count("entry").alias("packed_times")
    )
    batch_known = opened.select(*NAME).distinct().withColumn("batch_known", F.lit(True))
    late_rows = overtaken.select("at", "state", "number").withColumn("late_row", F.lit(True))
    return (
        came.join(sorts, [*NAME, "identity"], "left")
        .join(batch_known, [*NAME], "left")
        .join(F.broadcast(late_rows), ["at", "state", "number"], "left")
        .withColumn("is_known", F.expr("packed_as IS NOT NULL OR event = 'retried'"))
        .withColumn(
            "is_reordered",
            F.expr(
                "outcome = 1 AND NOT is_flagged AND event = 'batch'"
                " AND (coalesce(late_row, false) OR (packed_times = 1 AND packed_as < entry))"
            ),
        )
    )


def _set_aside(done: DataFrame, came: DataFrame) -> DataFrame:
    """Return batches that do not count at a site, or that the site could not decode: none of their
    messages can be missed there. Every site judges void by the same marks: if more sites took the
    batch than did not, the batch was good (and is lost at the others); if fewer did, nobody can
    say.
    """
    from pyspark.sql import functions as F  # noqa: N812

    took = (
        done.where("event = 'batch' AND count > 0 AND NOT is_repair")
        .groupBy(*NAME)
        .agg(F.count_distinct("at").alias("took"))
    )
    void = done.where("event = 'void'").select(*NAME, "at").distinct()
    void = (
        void.join(void.groupBy(*NAME).agg(F.count("at").alias("did_not")), [*NAME])
        .join(took, [*NAME], "left")
        .selectExpr(
            *NAME,
            "at",
            "took IS NULL AS is_void",
            "coalesce(took > did_not, false) AS is_refused",
            "coalesce(took <= did_not, false) AS is_disputed",
        )
    )
    odd_entries = came.where("outcome = 6 AND batch_known AND packed_as IS NULL")
    aside = done.where("event = 'quarantined'").select(*NAME, "at")
    aside = aside.unionByName(odd_entries.select(*NAME, "at"))
    return (
        void.withColumn("is_aside", F.lit(False))
        .unionByName(aside.withColumn("is_aside", F.lit(True)), allowMissingColumns=True)
        .groupBy(*NAME, "at")
        .agg(*(F.max(one).alias(one) for one in _SET_ASIDE))
    )


def _pairs(
    assumptions: Assumptions, whole: DataFrame, positions: Positions, aside: DataFrame
) -> DataFrame:
    """Return one row per batch and expected site: `is_passed`, `is_void`, `is_refused`,
    `is_disputed`, `is_aside`, `is_partial`. A message that a packer began and did not end is void
    once a later incarnation follows, which packed the message anew, unless rows of the packer are
    missing, which might have the remaining pieces.
    """
    from pyspark.sql import functions as F  # noqa: N812

    begun = (
        ranks_frame(assumptions, positions).groupBy("origin").agg(F.max("rank").alias("last_rank"))
    )
    return (
        whole.where("packs > 0 AND expected IS NOT NULL")
        .select(
            *NAME,
            *("origin", "exchange", "lane", "place", "deadline_ms", "is_partial"),
            F.explode("expected").alias("at"),
        )
        .join(
            F.broadcast(passed_frame(assumptions, positions)),
            ["at", "origin", "exchange", "lane"],
            "left",
        )
        .join(F.broadcast(site_gaps_frame(assumptions, positions)), ["at"], "left")
        .join(F.broadcast(begun), ["origin"], "left")
        .join(aside, [*NAME, "at"], "left")
        .withColumn(
            "lacks_packed", assumptions.is_one_of("origin", _lacking(assumptions, "packed"))
        )
        .selectExpr(
            *NAME,
            "at",
            "deadline_ms",
            "is_partial",
            "greatest(gap_ms, site_gap_ms) AS gap_ms",
            "coalesce(place <= passed_to, false) AND NOT is_partial AS is_passed",
            "coalesce(is_void, false) OR (is_partial AND NOT lacks_packed"
            f" AND shiftright(place, {SEQUENCE_BITS}) < last_rank) AS is_void",
            *(f"coalesce({one}, false) AS {one}" for one in _SET_ASIDE[1:]),
        )
    )


def _lacking(assumptions: Assumptions, stage: str) -> list[str]:
    """Return sites whose rows of a stage are missing, or went with a former state folder."""
    books = assumptions.books
    return [site for site, of in [*books.incomplete, *books.renewed] if of == stage]
