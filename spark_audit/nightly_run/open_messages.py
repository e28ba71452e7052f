"""Messages that an audit left open, as rows that the next one starts from: looks at them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_audit.compare import batches, entries
from spark_audit.compare.digest import OF_LINKS
from spark_audit.compare.opened_batches import NAME
from spark_audit.compare.reading import LedgerReading
from spark_audit.compare.whole_batches import compared_whole
from spark_audit.judge.verdicts import OPEN, batch_name

SCHEMA = """
    published TIMESTAMP, verdict STRING, identity STRING, origin STRING, destination STRING,
    exchange STRING, scope STRING, why STRING, batch STRING, series BIGINT, sequence BIGINT,
    variant STRING
"""
"""Of the table `pending`. Sites are cluster IDs; (series, sequence) names the batch here; `variant`
tells messages apart that were published under one identity, as in `verdicts.MESSAGE`."""
_ARRIVED = ("delivered", "late")
_IS_ONE = """
    judged.at = left.destination AND judged.exchange = left.exchange AND judged.scope = left.scope
    AND judged.origin = left.origin AND lower(hex(judged.identity)) = left.identity
    AND (lower(hex(judged.variant)) <=> left.variant
        OR (judged.variant IS NULL OR left.variant IS NULL)
            AND judged.batch.series = left.series AND judged.batch.sequence = left.sequence)
"""
"""Whether a judged message is the one that was left open. That its identity stands for several
messages one night may know and the other not: then its batch says which of them it is."""


def left_open(messages: Any) -> Any:
    """Of judged messages, those that are open, as rows of SCHEMA."""
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
    reading: LedgerReading, expected: Any, left: Any, say: Callable[[str], None], *, in_order: bool
) -> Any:
    """The messages of `left` (SCHEMA, kept), judged by all that `reading` has. Those of which no
    packed row is there any more are not among them. `in_order`: order is looked at as well.
    """
    assumptions = reading.assumptions
    keep = assumptions.keep
    say("looking for what earlier days left open")
    names = keep(left.select(*NAME).distinct())
    files = files_of(reading.table, left)
    # Whose flows' order is judged: all that was read, since what overtook it may be of today.
    overtaken = keep(reading.overtaken(reading.settled(None if in_order else files)))
    judged = _judged(reading, expected, left, names, files, overtaken)
    known_as = keep(
        entries.known_as_of(
            judged.where(f"verdict NOT IN {_ARRIVED!r}"), assumptions.by_origin
        ).distinct()
    )
    if not known_as.head(1):
        return judged
    # Another batch may have brought it: a repair's, or the same message sent again.
    packed = reading.packed()
    named = reading.with_identities(packed, known_as)
    elsewhere = keep(named.join(names, [*NAME], "left_anti"))
    if not elsewhere.head(1):
        return judged
    where = batches.blocks_of(packed.join(elsewhere, [*NAME], "left_semi"))
    names = keep(names.unionByName(elsewhere).distinct())
    return _judged(reading, expected, left, names, files | reading.files_of(where), overtaken)


def _judged(
    reading: LedgerReading, expected: Any, left: Any, names: Any, files: set[str], overtaken: Any
) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    assumptions = reading.assumptions
    packed = reading.packed(files).join(names, [*NAME], "left_semi")
    settled = reading.settled(files).join(names, [*NAME], "left_semi")
    whole = assumptions.keep(compared_whole(assumptions, reading.source, packed, settled, expected))
    messages = reading.opened(whole, names, overtaken).alias("judged")
    return assumptions.keep(messages.join(left.alias("left"), F.expr(_IS_ONE), "left_semi"))


def without_rows(left: Any, judged: Any) -> Any:
    """Those of `left` that `looked_at_again` has no answer to, as rows of SCHEMA."""
    from pyspark.sql import functions as F  # noqa: N812

    return (
        left.alias("left")
        .join(judged.alias("judged"), F.expr(_IS_ONE), "left_anti")
        .withColumn("verdict", F.lit("unproven"))
        .withColumn("why", F.lit("the ledger has no row of its packing any more"))
    )


def files_of(table: Any, left: Any) -> set[str]:
    """Those that may have rows of the batches of these messages, of any stage. `table`: the
    digest.
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
