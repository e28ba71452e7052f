"""Order and loops: what batches' rows say by themselves, without opening one."""

from __future__ import annotations

from typing import Any

_HAS_PLAIN = "is_clean OR hex(outcomes) RLIKE '^(?:..)*[014589CD]1'"
"""At least one message delivered that was not flagged: flagged repeats may come late."""
IS_LOOPED = """(CASE size(path) WHEN 0 THEN false WHEN 1 THEN false WHEN 2 THEN path[0] = path[1]
    ELSE size(path) <> size(array_distinct(path)) END)"""
"""The batch had been at a site twice. Nearly all paths are short: those cost a comparison."""


def overtaken_rows(settled: Any, ranks: Any) -> Any:
    """(at, state, number) of rows that delivered what stands before, in its origin's log, something
    that the site had delivered already. Within one state folder, where `number` is the order.
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


def looped_rows(rows: Any) -> Any:
    """Rows of batches that had been at a site twice."""
    return rows.where(IS_LOOPED)
