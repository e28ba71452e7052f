"""Outcomes of each message at each site, expected there or not, and findings made of verdicts.

A message is an identity within its exchange (and its origin, where the exchange is scoped so).
Copies may lie in several batches: a message is expected once at each site, by whatever batch.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from relay.ledger.rows import Outcome

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MESSAGE = ("at", "exchange", "scope", "identity", "variant")
"""Columns that name a message at a site. `variant` distinguishes messages published under one
identity with several contents; null otherwise."""


class MessageVerdict(StrEnum):
    """Verdict on a message at one site, as tables and reports have it."""

    DELIVERED = "delivered"
    LATE = "late"
    UNROUTED = "unrouted"
    DEAD_LETTERED = "dead-lettered"
    QUARANTINED = "quarantined"
    EXPIRED = "expired"
    SUPPRESSED = "suppressed"
    VOID = "void"
    UNPROVEN = "unproven"
    LOST = "lost"
    DEPARTED = "departed"
    PENDING = "pending"
    UNEXPECTED = "unexpected"


FINDINGS = (*("lost", "leaked duplicate", "unexpected", "altered", "reordered", "looped", "late"),)
OPEN = (MessageVerdict.PENDING.value, MessageVerdict.UNPROVEN.value)
"""Verdicts that later audits may settle: on the way still, or rows are missing."""
_FIRST = (
    "STRUCT<delivered_ms: BIGINT, state: STRING, number: BIGINT, entry: INT, outcome: INT,"
    " is_flagged: BOOLEAN>"
)
JUDGED = f"""
    at STRING, exchange STRING, scope STRING, identity BINARY, variant BINARY, origin STRING,
    sent INT, live INT, aside INT, passed INT, partial INT, refused INT, disputed INT, plain INT,
    flagged INT, conflicts INT, duplicates INT, repairs_refused INT, expired INT, dead INT,
    quarantined INT, unrouted INT, own INT, repaired INT, altered INT, reordered INT,
    from_nowhere INT, first {_FIRST}, delivered_ms BIGINT, again_ms BIGINT, published_ms BIGINT,
    deadline_ms BIGINT, gap_ms BIGINT, batch STRUCT<series: BIGINT, sequence: BIGINT>,
    name STRUCT<incarnation: BINARY, lane: INT, destinations: ARRAY<STRING>, sequence: BIGINT,
    entry: INT>, arrived_in_all BIGINT, known_in_all BIGINT, first_in_all {_FIRST},
    incomplete_at BOOLEAN, renewed_at BOOLEAN, begun_at BOOLEAN, incomplete_from BOOLEAN,
    departed_at BOOLEAN, verdict STRING, is_in_gap BOOLEAN, leaked INT, redelivered INT,
    is_partial BOOLEAN, why STRING
"""
"""Columns of `verdict_rules.judged`, for an empty table without a plan."""


def _is(outcome: Outcome) -> str:
    return f"outcome = {int(outcome)}"


def by_message(sent: DataFrame, settled: DataFrame) -> DataFrame:
    """Return one row per message, site and origin: the number of expected copies, and the outcomes.

    `sent`: entries for each expected site, with `at`, `is_void`, `is_aside`, `is_refused`,
    `is_disputed`, `is_passed`, `is_partial`, `gap_ms`, `deadline_ms`. `settled`: entries with
    `is_altered`, `is_reordered`, `is_known`. Both with `variant`.
    """
    from pyspark.sql import functions as F  # noqa: N812

    came = "outcome IS NOT NULL"
    delivered = _is(Outcome.DELIVERED)
    # Under an identity with other content: a message of its own, expected once as well.
    in_conflict = "is_conflict AND variant IS NULL"
    plain = f"{delivered} AND NOT is_flagged AND NOT ({in_conflict})"
    columns = [*MESSAGE, "origin"]
    both = sent.withColumn("is_sent", F.lit(True)).unionByName(settled, allowMissingColumns=True)

    def count(what: str) -> Column:
        return F.expr(f"CAST(count_if({what}) AS INT)")

    name = "struct(incarnation, lane, destinations, sequence, entry)"
    is_live = "is_sent AND NOT is_void AND NOT is_aside AND NOT is_partial"
    order = f"CASE WHEN ({plain}) OR ({delivered} AND is_flagged) OR {_is(Outcome.OWN)}"
    order += " THEN struct(delivered_ms, state, number, entry, outcome, is_flagged) END"
    return both.groupBy(*columns).agg(
        count("is_sent").alias("sent"),
        count("is_sent AND NOT is_void AND NOT is_aside").alias("live"),
        count("is_sent AND is_aside").alias("aside"),
        count("is_sent AND NOT is_void AND NOT is_aside AND is_passed").alias("passed"),
        count("is_sent AND is_partial AND NOT is_void").alias("partial"),
        count("is_sent AND is_refused").alias("refused"),
        count("is_sent AND is_disputed").alias("disputed"),
        count(plain).alias("plain"),
        count(f"{delivered} AND is_flagged").alias("flagged"),
        count(f"{delivered} AND {in_conflict} AND NOT is_flagged").alias("conflicts"),
        count(f"{came} AND {_is(Outcome.DUPLICATE)}").alias("duplicates"),
        # A refused repair is no evidence of the message's own outcome.
        count(f"{came} AND {_is(Outcome.DUPLICATE)} AND is_repair").alias("repairs_refused"),
        count(f"{came} AND {_is(Outcome.EXPIRED)}").alias("expired"),
        count(f"{came} AND {_is(Outcome.DEAD)}").alias("dead"),
        count(f"{came} AND {_is(Outcome.QUARANTINED)}").alias("quarantined"),
        count(f"{came} AND {_is(Outcome.UNROUTED)}").alias("unrouted"),
        count(f"{came} AND {_is(Outcome.OWN)}").alias("own"),
        count(f"{delivered} AND is_repaired").alias("repaired"),
        count("is_altered").alias("altered"),
        count("is_reordered").alias("reordered"),
        count(f"{delivered} AND NOT is_known").alias("from_nowhere"),
        F.min(F.expr(order)).alias("first"),
        F.min(F.expr(f"CASE WHEN {delivered} THEN delivered_ms END")).alias("delivered_ms"),
        F.max(F.expr(f"CASE WHEN {plain} THEN delivered_ms END")).alias("again_ms"),
        F.coalesce(
            F.min(F.expr("CASE WHEN is_sent THEN published_ms END")), F.min("published_ms")
        ).alias("published_ms"),
        F.min("deadline_ms").alias("deadline_ms"),
        F.max("gap_ms").alias("gap_ms"),
        # Prefer a copy that counts: a void or partial one cannot be sent again, and nothing
        # waits for it.
        F.coalesce(
            *(
                F.min(F.expr(f"CASE WHEN {which} THEN struct(series, sequence) END"))
                for which in (is_live, "is_sent")
            )
        ).alias("batch"),
        # As the origin packed the message, if any row shows so, and not as a repair did.
        F.coalesce(
            *(
                F.min(F.expr(f"CASE WHEN {which} THEN {name} END"))
                for which in (is_live, "is_sent", "true")
            )
        ).alias("name"),
    )


def findings_of(messages: DataFrame) -> DataFrame:
    """Return one row per finding: `kind`, message, batch, times and reason."""
    kinds = """
        explode(filter(array(
            CASE WHEN verdict IN ('lost', 'unexpected', 'late') THEN verdict END,
            CASE WHEN leaked > 0 AND verdict <> 'unexpected' THEN 'leaked duplicate' END,
            CASE WHEN altered > 0 THEN 'altered' END,
            CASE WHEN reordered > 0 THEN 'reordered' END
        ), k -> k IS NOT NULL)) AS kind
    """
    return messages.selectExpr(
        kinds,
        "hex(identity) AS identity",
        "origin",
        "at AS destination",
        "exchange",
        "published_ms",
        "delivered_ms",
        "leaked",
        "why",
        "name",
    ).selectExpr(
        "kind",
        "lower(identity) AS identity",
        "origin",
        "destination",
        "exchange",
        "timestamp_millis(published_ms) AS published",
        "timestamp_millis(delivered_ms) AS delivered",
        """CASE kind
            WHEN 'leaked duplicate' THEN concat('delivered ', CAST(leaked + 1 AS STRING),
                ' times, the repeat not flagged')
            WHEN 'altered' THEN 'delivered with other content than it was published with'
            WHEN 'reordered' THEN 'delivered after a later message of its flow'
            ELSE why END AS why""",
        batch_name("name.incarnation", "name.lane", "name.destinations", "name.sequence")
        + " AS batch",
        "name.entry AS entry",
    )


def loops_of(rows: DataFrame) -> DataFrame:
    """Return one finding per batch and site for batches that came to a site twice on one path."""
    return rows.selectExpr(
        "'looped' AS kind",
        "CAST(NULL AS STRING) AS identity",
        "origin",
        "at AS destination",
        "exchange",
        "first_published AS published",
        "CAST(NULL AS TIMESTAMP) AS delivered",
        "concat('came by ', array_join(path, ' > ')) AS why",
        batch_name("incarnation", "lane", "destinations", "sequence") + " AS batch",
        "CAST(NULL AS INT) AS entry",
    ).dropDuplicates(["batch", "destination"])


def batch_name(incarnation: str, lane: str, destinations: str, sequence: str) -> str:
    """Return SQL of a batch's name as `status` and quarantine show it."""
    return f"""
        concat(origin, '/', lower(hex({incarnation})), '/', exchange, '.', {lane}, '>',
            CASE WHEN size({destinations}) = 0 THEN '*' ELSE array_join({destinations}, ',') END,
            '/', {sequence})
    """
