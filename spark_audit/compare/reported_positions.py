"""Positions of each site as the digest reports them, input of `Positions.of`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_audit.compare.assumptions import Assumptions
from spark_audit.judge.positions import FlowAt, Positions, SeenIncarnation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def seen_incarnations(table: DataFrame) -> list[SeenIncarnation]:
    """Return the first packed row of each incarnation and state folder, from the digest."""
    from pyspark.sql import functions as F  # noqa: N812

    return [
        SeenIncarnation(origin, bytes(incarnation).hex(), state, number, ms)
        for origin, incarnation, state, number, ms in table.where(
            "stage = 'packed' AND incarnation IS NOT NULL"
        )
        .groupBy("origin", "incarnation", "state")
        .agg(F.min("first_number"), F.min_by("from_ms", "first_number"))
        .collect()
    ]


def reported_positions(assumptions: Assumptions, table: DataFrame) -> Positions:
    """Return how far each site has come, from the digest."""
    from pyspark.sql import functions as F  # noqa: N812

    seen = seen_incarnations(table)
    through = (
        table.where(
            "stage = 'delivered' AND event IN ('through', 'batch', 'void', 'quarantined')"
            " AND exchange IS NOT NULL AND incarnation IS NOT NULL"
        )
        .withColumn("at", assumptions.cluster_of())
        .groupBy("site", "state", "at", "origin", "exchange", "lane", "incarnation")
        .agg(F.max(F.expr("last_sequence - CASE WHEN event = 'through' THEN 0 ELSE 1 END")))
        .collect()
    )
    gaps = (
        table.where("stage = 'delivered' AND event = 'gap'")
        .withColumn("at", assumptions.cluster_of())
        .groupBy("at", "origin", "exchange", "lane")
        .agg(F.max("to_ms"))
        .collect()
    )
    renewed = assumptions.books.renewed
    return Positions.of(
        [*seen, *assumptions.incarnations],
        [
            (FlowAt(at, origin, exchange, lane), bytes(incarnation).hex(), last)
            for site, state, at, origin, exchange, lane, incarnation, last in through
            if state in renewed.get((site, "delivered"), (state,))
        ],
        [
            (at, FlowAt(at, origin, exchange, lane) if origin and exchange else None, ms)
            for at, origin, exchange, lane, ms in gaps
        ],
    )


def ranks_frame(assumptions: Assumptions, positions: Positions) -> DataFrame:
    """Return a table of origin, incarnation, rank."""
    return assumptions.frame(
        [(o, bytes.fromhex(i), r) for (o, i), r in positions.rank.items()],
        {"origin": "string", "incarnation": "binary", "rank": "long"},
    )


def passed_frame(assumptions: Assumptions, positions: Positions) -> DataFrame:
    """Return a table of at, origin, exchange, lane, passed_to, gap_ms."""
    return assumptions.frame(
        [
            (*flow, positions.passed.get(flow), positions.gaps.get(flow))
            for flow in sorted({*positions.passed, *positions.gaps})
        ],
        {
            "at": "string",
            "origin": "string",
            "exchange": "string",
            "lane": "int",
            "passed_to": "long",
            "gap_ms": "long",
        },
    )


def site_gaps_frame(assumptions: Assumptions, positions: Positions) -> DataFrame:
    """Return a table of at, site_gap_ms."""
    return assumptions.frame(
        list(positions.site_gaps.items()), {"at": "string", "site_gap_ms": "long"}
    )
