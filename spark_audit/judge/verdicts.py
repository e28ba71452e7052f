"""What became of each message at each site that was to have it, or had it all the same.

A message is an identity within its exchange (and its origin, where the exchange says so). Copies of
it may stand in several batches: it is expected once at each site, and whatever brings it counts.
"""

from __future__ import annotations

from typing import Any

from relay.ledger.rows import Outcome

MESSAGE = ("at", "exchange", "scope", "identity", "variant")
"""One message at one site. `variant` tells apart what was published under one identity with several
contents; null of all others.
"""

FINDINGS = (*("lost", "leaked duplicate", "unexpected", "altered", "reordered", "looped", "late"),)
OPEN = ("pending", "unproven")
"""Neither: not there yet, or not to be told from these ledgers."""
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
"""The columns of what `judged` answers: where nothing is to be opened, no plan is made for it."""


def _is(outcome: Outcome) -> str:
    return f"outcome = {int(outcome)}"


def by_message(sent: Any, settled: Any) -> Any:
    """One row a (message, site, origin): how often it was to come there, and what came.

    `sent`: entries for each site that was to get them, with `at`, `is_void`, `is_aside`,
    `is_refused`, `is_disputed`, `is_passed`, `is_partial`, `gap_ms`, `deadline_ms`. `settled`:
    entries with `is_altered`, `is_reordered`, `is_known`. Both with `variant`.
    """
    from pyspark.sql import functions as F  # noqa: N812

    came = "outcome IS NOT NULL"
    delivered = _is(Outcome.DELIVERED)
    # In conflict with what is another message: a message of its own, which comes once as well.
    in_conflict = "is_conflict AND variant IS NULL"
    plain = f"{delivered} AND NOT is_flagged AND NOT ({in_conflict})"
    columns = [*MESSAGE, "origin"]
    both = sent.withColumn("is_sent", F.lit(True)).unionByName(settled, allowMissingColumns=True)

    def count(what: str) -> Any:
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
        # A repair that was refused says nothing of what became of the message before.
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
        # Of the copies, one that counts: what is void or only begun cannot be sent again, and is
        # not what is waited for.
        F.coalesce(
            *(
                F.min(F.expr(f"CASE WHEN {which} THEN struct(series, sequence) END"))
                for which in (is_live, "is_sent")
            )
        ).alias("batch"),
        # As its origin packed it, if it did: not the repair's.
        F.coalesce(
            *(
                F.min(F.expr(f"CASE WHEN {which} THEN {name} END"))
                for which in (is_live, "is_sent", "true")
            )
        ).alias("name"),
    )


def judged(
    messages: Any,
    *,
    incomplete_at: Any,
    renewed_at: Any,
    begun_at: Any,
    departed_at: Any,
    incomplete_from: Any,
) -> Any:
    """With `verdict`, `leaked`, `redelivered` and `why`. Expressions:
    whether the books of the site, or of the origin's packer, lack rows (`incomplete_at`,
    `incomplete_from`), whether the site's state folder was made anew (`renewed_at`): what it had
    passed before is known, what it lacks since is not. Whether it delivered before these rows begin
    (`begun_at`): a duplicate may be of something from then. Whether the site is in the mesh no more
    (`departed_at`): what it had not come to is not for it any more.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    all_origins = Window.partitionBy(*MESSAGE)
    told = (
        messages.withColumn(
            "arrived_in_all", F.sum(F.expr("plain + flagged + conflicts")).over(all_origins)
        )
        .withColumn("known_in_all", F.sum(F.expr("own + unrouted")).over(all_origins))
        .withColumn("first_in_all", F.min("first").over(all_origins))
        .withColumn("incomplete_at", incomplete_at)
        .withColumn("renewed_at", renewed_at)
        .withColumn("begun_at", begun_at)
        .withColumn("incomplete_from", incomplete_from)
        .withColumn("departed_at", departed_at)
    )
    is_first = "first <=> first_in_all AND first_in_all.outcome = 1 AND NOT first_in_all.is_flagged"
    verdict = """
        CASE
            WHEN sent > 0 AND plain + flagged + conflicts > 0 THEN
                CASE WHEN delivered_ms - published_ms > deadline_ms AND repaired = 0 THEN 'late'
                     ELSE 'delivered' END
            WHEN sent > 0 AND unrouted > 0 THEN 'unrouted'
            WHEN sent > 0 AND dead > 0 THEN 'dead-lettered'
            WHEN sent > 0 AND quarantined > 0 THEN 'quarantined'
            WHEN sent > 0 AND expired > 0 THEN 'expired'
            WHEN sent > 0 AND duplicates > repairs_refused THEN
                CASE WHEN arrived_in_all + known_in_all > 0 THEN 'suppressed'
                     WHEN incomplete_at OR renewed_at OR begun_at THEN 'unproven'
                     ELSE 'lost' END
            WHEN sent > 0 AND arrived_in_all > 0 THEN 'suppressed'
            WHEN sent > 0 AND live = 0 THEN CASE WHEN aside > 0 THEN 'quarantined' ELSE 'void' END
            WHEN sent > 0 AND (incomplete_at OR disputed > 0) THEN 'unproven'
            WHEN sent > 0 AND partial > 0 AND incomplete_from THEN 'unproven'
            WHEN sent > 0 AND passed + refused > 0 THEN 'lost'
            WHEN sent > 0 AND renewed_at THEN 'unproven'
            WHEN sent > 0 AND departed_at THEN 'departed'
            WHEN sent > 0 THEN 'pending'
            WHEN plain + flagged + conflicts = 0 THEN NULL
            WHEN from_nowhere > 0 AND incomplete_from THEN 'unproven'
            ELSE 'unexpected'
        END
    """
    why = """
        CASE
            WHEN verdict = 'lost' AND duplicates > repairs_refused THEN
                'suppressed as a duplicate, and never delivered at this site'
            WHEN verdict IN ('lost', 'unproven') AND is_in_gap THEN
                'the site had not delivered it when its log dropped it (retention, or a full log)'
            WHEN verdict = 'lost' AND refused > 0 THEN
                'the site took its batch for void, and most others did not'
            WHEN verdict = 'unproven' AND disputed > 0 THEN
                'the site took its batch for void, and another one did not'
            WHEN verdict = 'lost' THEN
                'the site is done with later batches of its origin and never had this message'
            WHEN verdict = 'unexpected' AND at = origin THEN 'delivered back at its origin'
            WHEN verdict = 'unexpected' AND from_nowhere > 0 THEN
                'delivered, and its origin never packed it'
            WHEN verdict = 'unexpected' THEN 'delivered at a site that was not to have it'
            WHEN verdict = 'unproven' AND duplicates > repairs_refused THEN
                'suppressed as a duplicate of what the rows that were read of this site lack'
            WHEN verdict = 'unproven' AND partial > 0 AND incomplete_from THEN
                'packed in part, and rows of its origin are missing that might tell of the rest'
            WHEN verdict = 'unproven' AND sent = 0 THEN
                'delivered, and rows of its origin are missing that might tell of it'
            WHEN verdict = 'unproven' THEN
                'no row of it, and rows of this site are missing that might tell of it'
            WHEN verdict = 'late' THEN
                concat('took ', CAST((delivered_ms - published_ms) DIV 1000 AS STRING), ' s')
        END
    """
    return (
        told.withColumn("verdict", F.expr(verdict))
        .where("verdict IS NOT NULL")
        .withColumn("is_in_gap", F.expr("coalesce(sent > 0 AND published_ms < gap_ms, false)"))
        .withColumn(
            "leaked", F.expr(f"greatest(plain - CASE WHEN {is_first} THEN 1 ELSE 0 END, 0)")
        )
        .withColumn("redelivered", F.col("flagged"))
        .withColumn("is_partial", F.expr("partial > 0"))
        .withColumn("why", F.expr(why))
    )


def findings_of(messages: Any) -> Any:
    """One row a finding: `kind`, message, place, times, and why."""
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


def loops_of(rows: Any) -> Any:
    """The same of batches that came to a site twice on one path, one row a batch and site."""
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
    """A batch's name as `status` and quarantine show it."""
    return f"""
        concat(origin, '/', lower(hex({incarnation})), '/', exchange, '.', {lane}, '>',
            CASE WHEN size({destinations}) = 0 THEN '*' ELSE array_join({destinations}, ',') END,
            '/', {sequence})
    """
