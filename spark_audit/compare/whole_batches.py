"""Whole batches: the sites that each was to reach by its mesh, against the settlements of all
sites.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_audit.compare import batches
from spark_audit.compare.assumptions import Assumptions
from spark_audit.judge.expectation import Addressed
from spark_audit.ledgers.source import LedgerSource
from spark_audit.level import Level

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Expectations:
    """Expected sites. `table`: `expected` and `deadline_ms` by revision, exchange, origin and
    addressed. `unknown`: revisions without a document.
    """

    table: DataFrame
    unknown: list[str]

    def problems(self) -> list[str]:
        return [
            f"nobody's ledger/revisions has {one or 'the revision of some batches'}"
            for one in self.unknown
        ]


def expectations(assumptions: Assumptions, table: DataFrame) -> Expectations:
    """Return the expected sites of everything packed, from the digest."""
    revisions = assumptions.revisions
    kinds = [
        (*row[:3], tuple(row[3]))
        for row in table.where("stage = 'packed' AND event = 'batch' AND is_message")
        .select("revision", "exchange", "origin", "destinations")
        .distinct()
        .collect()
    ]
    known = [(k, revisions.expected(Addressed(*k))) for k in kinds]
    return Expectations(
        assumptions.frame(
            [
                (*k[:3], ",".join(k[3]), sites, revisions.deadline_ms(Addressed(*k)))
                for k, sites in known
                if sites is not None
            ],
            {
                "revision": "string",
                "exchange": "string",
                "origin": "string",
                "addressed": "string",
                "expected": "strings",
                "deadline_ms": "long",
            },
        ),
        sorted({k[0] for k, sites in known if sites is None}),
    )


def compared_whole(
    assumptions: Assumptions,
    source: LedgerSource,
    packed: DataFrame,
    settled: DataFrame,
    expected: DataFrame,
) -> DataFrame:
    """Compare `batches.packed_rows` with `batches.settled_rows`: one row per batch, with
    `is_whole`.
    """
    from pyspark.sql import functions as F  # noqa: N812

    if assumptions.level is Level.FINGERPRINT:
        settled = batches.parts_together(settled)
    together = batches.together(packed, settled).join(
        F.broadcast(expected), ["revision", "exchange", "origin", "addressed"], "left"
    )
    if assumptions.revisions.begins_at_start:
        together = _with_early(assumptions, source, together)
    period = assumptions.period
    return batches.judged_whole(together, period.from_ms, period.to_ms, assumptions.level)


def _with_early(assumptions: Assumptions, source: LedgerSource, together: DataFrame) -> DataFrame:
    """Extend `expected` by sites that begin at the start: batches for every site that links brought
    them count, although the revision lacks the site.
    """
    from pyspark.sql import functions as F  # noqa: N812

    early = (
        source.rows(("linked_in",))
        .where("event = 'batch' AND size(destinations) = 0")
        .withColumn("at", assumptions.cluster_of())
        .where(F.col("at").isin(*sorted(assumptions.revisions.begins_at_start)))
        .selectExpr(*batches.NAME, "at", "origin")
        .where("at <> origin")
        .groupBy("series", "sequence")
        .agg(F.collect_set("at").alias("early"))
    )
    return (
        together.join(early, ["series", "sequence"], "left")
        .withColumn(
            "expected",
            F.expr(
                "CASE WHEN early IS NULL OR expected IS NULL THEN expected"
                " ELSE array_sort(array_union(expected, early)) END"
            ),
        )
        .drop("early")
    )
