"""The two levels of comparison: *exact* by batches, *fingerprint* by blocks.

*Exact*: every batch by hashes of its identities, and each identity by its places. A batch that does
not add up is opened, and so is a batch that shares an identity with another place.

*Fingerprint*: sums by minute, from the digest alone, then by batch. The sums of a block's delivered
rows at a site equal the sums of its packed rows if every message was delivered there once and no
other was; they are sums of hashes, so that a loss and a duplicate do not balance. Batches that
differ are opened. A batch that adds up may explain a difference (a message lacking in one batch
came by another), so identities that did not simply arrive are looked for in all packed rows and
opened there as well. A day on which all arrived is spared the search.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from spark_audit.compare import batches, entries
from spark_audit.compare.assumptions import Assumptions
from spark_audit.compare.digest import BLOCK
from spark_audit.compare.opened_batches import NAME
from spark_audit.compare.reading import Compared, LedgerReading
from spark_audit.compare.whole_batches import compared_whole

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

IDENTITIES_AT_ONCE = 200_000
"""Identities per task of the search for repeats: a table of so many is small beside a gigabyte."""


def by_batches(
    reading: LedgerReading, expected: DataFrame, say: Callable[[str], None], *, open_all: bool
) -> Compared:
    """Compare all files by batches. `expected`: expected sites, see `Expectations`."""
    assumptions = reading.assumptions
    keep = assumptions.keep
    packed, settled = reading.packed(), reading.settled()
    whole = keep(compared_whole(assumptions, reading.source, packed, settled, expected))
    overtaken = keep(reading.overtaken(settled))
    odd = whole.where(f"NOT is_whole AND {assumptions.touches_period()}").select(*NAME)
    odd = reading.few(keep(odd.unionByName(overtaken.select(*NAME)).distinct()))
    say("looking for identities that came twice")
    known_as = keep(
        entries.repeated_identities(
            packed,
            settled.join(odd, [*NAME], "left_semi"),
            assumptions.by_origin,
            reading.messages_packed() // IDENTITIES_AT_ONCE + 1,
        )
    )
    if known_as.head(1):
        twice = reading.with_identities(packed, known_as)
        odd = reading.few(keep(odd.unionByName(twice).distinct()))
    if open_all:
        odd = reading.few(keep(whole.select(*NAME)))
    say("opening what does not add up")
    messages = reading.opened(whole, odd, overtaken)
    rest = whole.where("is_whole").join(odd, [*NAME], "left_anti")
    return Compared(
        messages,
        rest.selectExpr(
            *("origin", "expected", "exchange", "sent.first_ms AS first_ms"),
            "CAST(sent.count AS BIGINT) AS count",
        ),
        whole,
    )


_SUMS = ("counted", "identity_sum_1", "identity_sum_2", "content_sum")
_EVENTS = "event IN ('batch', 'void', 'quarantined', 'retried', 'dropped')"
_KEY = ["revision", "exchange", "origin", "addressed"]


def judged_blocks(assumptions: Assumptions, table: DataFrame, expected: DataFrame) -> DataFrame:
    """Return one row per block with messages of the period, with `is_whole`. `table`: the digest.
    `expected`: expected sites by revision, exchange, origin and addressed.
    """
    from pyspark.sql import functions as F  # noqa: N812

    per_site = (
        table.where(f"is_message AND stage IN ('packed', 'delivered') AND {_EVENTS}")
        .where(assumptions.touches_period())
        .withColumn("at", assumptions.cluster_of())
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
    blocks = _with_early(assumptions, table, blocks)
    period = assumptions.period
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


def _with_early(assumptions: Assumptions, table: DataFrame, blocks: DataFrame) -> DataFrame:
    """Add `early`: sites that begin at the start, with the publishing times of batches for every
    site that links brought them of the series. Links' rows are not split by minute, so only the
    batches show whether the sites were to have them.
    """
    from pyspark.sql import functions as F  # noqa: N812

    begin = sorted(assumptions.revisions.begins_at_start)
    early = (
        table.where("stage = 'linked_in' AND event = 'batch' AND size(destinations) = 0")
        .withColumn("at", assumptions.cluster_of())
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


_TO_EXPLAIN = "leaked > 0 OR conflicts > 1 OR verdict NOT IN ('delivered', 'late')"


def by_blocks(
    reading: LedgerReading, expected: DataFrame, say: Callable[[str], None], *, open_all: bool
) -> Compared:
    """Compare by the digest, and by rows of blocks that differ. `expected`: expected sites."""
    assumptions = reading.assumptions
    keep = assumptions.keep
    blocks = keep(judged_blocks(assumptions, reading.table, expected))
    odd_blocks = keep(blocks.where("true" if open_all else "NOT is_whole").select(*BLOCK))
    if not odd_blocks.head(1):
        return Compared(reading.nothing_opened(), _in_whole_blocks(blocks))
    none = assumptions.frame([], {"series": "long", "sequence": "long"})
    whole, odd, messages = _opened(reading, expected, odd_blocks, none, say, open_all=open_all)
    known_as = keep(
        entries.known_as_of(messages.where(_TO_EXPLAIN), assumptions.by_origin).distinct()
    )
    if known_as.head(1):
        say("looking for where else these messages were")
        packed = reading.packed()
        named = reading.with_identities(packed, known_as)
        elsewhere = keep(named.join(odd, [*NAME], "left_anti"))
        if elsewhere.head(1):
            where = batches.blocks_of(packed.join(elsewhere, [*NAME], "left_semi"))
            odd_blocks = keep(odd_blocks.unionByName(where).distinct())
            whole, odd, messages = _opened(
                reading, expected, odd_blocks, elsewhere, say, open_all=open_all
            )
    in_whole_batches = whole.where("is_whole").join(odd, [*NAME], "left_anti")
    return Compared(
        messages,
        _in_whole_blocks(blocks.join(odd_blocks, [*BLOCK], "left_anti")).unionByName(
            in_whole_batches.selectExpr(
                *("origin", "expected", "exchange", "sent.first_ms AS first_ms"),
                "CAST(sent.count AS BIGINT) AS count",
            )
        ),
    )


def _in_whole_blocks(blocks: DataFrame) -> DataFrame:
    """Return the rows of `Compared.whole` for blocks that add up."""
    return blocks.where("is_whole").selectExpr(
        "origin", "expected", "exchange", "first_ms", "sent[0].counted AS count"
    )


def _opened(
    reading: LedgerReading,
    expected: DataFrame,
    blocks: DataFrame,
    besides: DataFrame,
    say: Callable[[str], None],
    *,
    open_all: bool,
) -> tuple[DataFrame, DataFrame, DataFrame]:
    """Return the compared batches of these blocks, the names of the opened ones (batches that
    differ, and `besides`), and their messages.
    """
    assumptions = reading.assumptions
    keep = assumptions.keep
    say("opening what does not add up")
    files = reading.files_of(blocks)
    packed = batches.of_blocks(reading.packed(files), blocks)
    settled = batches.of_blocks(reading.settled(files), blocks)
    whole = keep(compared_whole(assumptions, reading.source, packed, settled, expected))
    # Only of blocks that differ: the order within sums that add up is not checked.
    overtaken = keep(reading.overtaken(settled))
    differs = "true" if open_all else f"NOT is_whole AND {assumptions.touches_period()}"
    odd = keep(whole.where(differs).select(*NAME).unionByName(besides).distinct())
    odd = reading.few(odd)
    return whole, odd, reading.opened(whole, odd, overtaken)
