"""Messages that an audit left open, as rows from which the next night judges them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from spark_audit.compare import batches, entries
from spark_audit.compare.digest import OF_LINKS
from spark_audit.compare.opened_batches import NAME
from spark_audit.compare.reading import LedgerReading
from spark_audit.compare.whole_batches import compared_whole
from spark_audit.judge.verdicts import OPEN, batch_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = """
    published TIMESTAMP, verdict STRING, identity STRING, origin STRING, destination STRING,
    exchange STRING, scope STRING, why STRING, batch STRING, series BIGINT, sequence BIGINT,
    variant STRING
"""
"""Columns of the table `pending`. Sites are cluster IDs; (series, sequence) names the batch;
`variant` distinguishes messages under one identity, as in `verdicts.MESSAGE`."""
_ARRIVED = ("delivered", "late")
_IS_ONE = """
    judged.at = left.destination AND judged.exchange = left.exchange AND judged.scope = left.scope
    AND judged.origin = left.origin AND lower(hex(judged.identity)) = left.identity
    AND (lower(hex(judged.variant)) <=> left.variant
        OR (judged.variant IS NULL OR left.variant IS NULL)
            AND judged.batch.series = left.series AND judged.batch.sequence = left.sequence)
"""
"""SQL: true if a judged message is the open one. Only one of the two nights may know that the
identity stands for several messages; then the batch decides."""


def left_open(messages: DataFrame) -> DataFrame:
    """Return the open ones of judged messages, as rows of SCHEMA."""
    known = ", ".join(f"'{one}'" for one in OPEN)
    name = batch_name("name.incarnation", "name.lane", "name.destinations", "name.sequence")
    return messages.where(f"verdict IN ({known})").selectExpr(
        "timestamp_millis(published_ms) AS published",
        "verdict",
        "lower(hex(identity)) AS identity",
        "origin",
        "at AS destination",
        "exchange",
        "scope",
        "why",
        f"{name} AS batch",
        "batch.series AS series",
        "batch.sequence AS sequence",
        "lower(hex(variant)) AS variant",
    )


def looked_at_again(
    reading: LedgerReading,
    expected: DataFrame,
    left: DataFrame,
    say: Callable[[str], None],
    *,
    in_order: bool,
) -> DataFrame:
    """Judge the messages of `left` (SCHEMA, kept) by all rows of `reading`; messages without a
    packed row any more are left out. `in_order`: True to judge the order too.
    """
    assumptions = reading.assumptions
    keep = assumptions.keep
    say("looking for what earlier days left open")
    names = keep(left.select(*NAME).distinct())
    files = files_of(reading.table, left)
    # The order is judged over all rows: the overtaking message may be of today.
    overtaken = keep(reading.overtaken(reading.settled(None if in_order else files)))
    judged = _judged(reading, expected, left, names, files, overtaken)
    known_as = keep(
        entries.known_as_of(
            judged.where(f"verdict NOT IN {_ARRIVED!r}"), assumptions.by_origin
        ).distinct()
    )
    if not known_as.head(1):
        return judged
    # Another batch may have brought the message: a repair's, or a second publishing.
    packed = reading.packed()
    named = reading.with_identities(packed, known_as)
    elsewhere = keep(named.join(names, [*NAME], "left_anti"))
    if not elsewhere.head(1):
        return judged
    where = batches.blocks_of(packed.join(elsewhere, [*NAME], "left_semi"))
    names = keep(names.unionByName(elsewhere).distinct())
    return _judged(reading, expected, left, names, files | reading.files_of(where), overtaken)


def _judged(
    reading: LedgerReading,
    expected: DataFrame,
    left: DataFrame,
    names: DataFrame,
    files: set[str],
    overtaken: DataFrame,
) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    assumptions = reading.assumptions
    packed = reading.packed(files).join(names, [*NAME], "left_semi")
    settled = reading.settled(files).join(names, [*NAME], "left_semi")
    whole = assumptions.keep(compared_whole(assumptions, reading.source, packed, settled, expected))
    messages = reading.opened(whole, names, overtaken).alias("judged")
    return assumptions.keep(messages.join(left.alias("left"), F.expr(_IS_ONE), "left_semi"))


def without_rows(left: DataFrame, judged: DataFrame) -> DataFrame:
    """Return the rows of `left` that `looked_at_again` left out."""
    from pyspark.sql import functions as F  # noqa: N812

    return (
        left.alias("left")
        .join(judged.alias("judged"), F.expr(_IS_ONE), "left_anti")
        .withColumn("verdict", F.lit("unproven"))
        .withColumn("why", F.lit("the ledger has no row of its packing any more"))
    )


def files_of(table: DataFrame, left: DataFrame) -> set[str]:
    """Return files of any stage that may have rows of these messages' batches. `table`:
    the digest.
    """
    from pyspark.sql import functions as F  # noqa: N812

    wanted = left.selectExpr(
        "series AS of_series", "unix_millis(published) DIV 60000 AS minute"
    ).distinct()
    here = table.join(
        F.broadcast(wanted),
        F.expr(
            f"(series = of_series OR {OF_LINKS})"
            " AND first_ms DIV 60000 <= minute AND last_ms DIV 60000 >= minute"
        ),
        "left_semi",
    )
    return {row["uri"] for row in here.select("uri").distinct().collect()}
