"""Evidence of receipts beside the ledgers: end to end, from before the egress to behind the queue.

Findings are DataFrames from which `COLUMNS` selects. `statements`: the receipts joined with the
packed messages; `whole`: all batches with their expected sites; `messages`: judged messages of
opened batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_audit.compare.assumptions import Assumptions
from spark_audit.ledgers.books import LedgerProblem
from spark_audit.receipts.reach import ConsumersReach, PublishersReach, packed_to
from spark_audit.receipts.statements import Statements, is_heard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = (
    *("kind", "identity", "origin", "destination", "exchange"),
    *("timestamp_millis(published_ms) AS published", "timestamp_millis(delivered_ms) AS delivered"),
    *("why", "CAST(NULL AS STRING) AS batch", "CAST(NULL AS INT) AS entry"),
)
_HEX = "replace(message_id, '-', '')"


ORDER_MS = 60_000
"""Time after which a later publishing certainly entered the egress queue later: publishers note
times a while before or after."""


def not_received(
    statements: Statements, whole: DataFrame, messages: DataFrame, reach: ConsumersReach
) -> DataFrame:
    """Return messages published and confirmed, without a receipt of any consumer at an expected
    site, and without another reason in the ledger. `is_heard`: the site has receipts of the
    exchange; `is_told`: also of earlier and later messages.
    """
    from pyspark.sql import functions as F  # noqa: N812

    due = (
        statements.known.where("is_confirmed")
        .join(whole.select("series", "sequence", "expected"), ["series", "sequence"])
        .withColumn("destination", F.explode("expected"))
        .groupBy("message_id", "identity", "scope", "origin", "destination", "exchange")
        .agg(F.min("at_ms").alias("published_ms"))
    )
    came = statements.consumed.selectExpr(
        "message_id AS came_id", "at AS came_at", "exchange AS came_by"
    ).distinct()
    # An identity may stand for several messages: a lost one takes precedence.
    judged = (
        messages.withColumnRenamed("at", "destination")
        .groupBy("identity", "scope", "origin", "destination", "exchange")
        .agg(F.expr("max(struct(verdict = 'lost', verdict, delivered_ms)) AS said"))
        .selectExpr(
            *("identity", "scope", "origin", "destination", "exchange"),
            *("said.verdict AS verdict", "said.delivered_ms AS delivered_ms"),
        )
    )
    return (
        due.join(
            came,
            F.expr(
                "message_id = came_id AND destination = came_at"
                " AND (came_by IS NULL OR came_by = exchange)"
            ),
            "left_anti",
        )
        # An unopened message is in a batch that was delivered whole.
        .join(judged, ["identity", "scope", "origin", "destination", "exchange"], "left")
        .join(reach.came, ["message_id", "destination", "exchange"], "left")
        .join(F.broadcast(reach.heard), ["destination", "exchange"], "left")
        .withColumn("is_told", F.expr(reach.is_told("coalesce(verdict, '') = 'lost'")))
        .withColumn("verdict", F.expr("coalesce(verdict, 'delivered')"))
        .where("verdict IN ('delivered', 'late', 'suppressed', 'lost')")
        .withColumn("is_heard", F.expr(is_heard(statements.consumers, "destination")))
        .withColumn("kind", F.lit("not received"))
        .withColumn("identity", F.expr("lower(hex(identity))"))
        .withColumn(
            "why",
            F.expr(
                "concat('no consumer there has a receipt of message_id ', message_id,"
                " '; the ledger says ', verdict)"
            ),
        )
    )


def never_packed(statements: Statements) -> DataFrame:
    """Return messages published and confirmed that no ledger has, one finding each. `is_told`:
    later messages of the egress queue were packed, so that the message does not wait there.
    """
    from pyspark.sql import functions as F  # noqa: N812

    books = statements.assumptions.books
    lacking = [
        site
        for site, stage in (
            *books.incomplete,
            *books.renewed,
        )
        if stage == "packed"
    ]
    packed = statements.sent.selectExpr(
        "message_id AS packed_id", "origin AS packed_at", "exchange AS packed_by"
    ).distinct()
    return (
        statements.published.where(
            f"{statements.within} AND is_confirmed AND {statements.comparable()}"
        )
        .withColumn("is_lacking", statements.assumptions.is_one_of("at", lacking))
        .join(
            packed,
            F.expr(
                "message_id = packed_id AND at = packed_at"
                " AND (exchange IS NULL OR exchange = packed_by)"
            ),
            "left_anti",
        )
        .join(
            F.broadcast(packed_to(statements)), F.expr("at = to_at AND exchange <=> to_by"), "left"
        )
        .selectExpr(
            "'not received' AS kind",
            f"CASE WHEN is_uuid THEN {_HEX} END AS identity",
            "at AS origin",
            "CAST(NULL AS STRING) AS destination",
            "exchange",
            "at_ms AS published_ms",
            "CAST(NULL AS BIGINT) AS delivered_ms",
            "concat('no ledger has message_id ', message_id,"
            " ': it was never taken off its exchange, and what came after it was') AS why",
            f"NOT is_lacking AND coalesce(at_ms + {ORDER_MS} < packed_to_ms, false) AS is_told",
        )
    )


def consumed_twice(statements: Statements, messages: DataFrame) -> DataFrame:
    """Return messages with two receipts of one queue, neither marked as redelivered. The publishing
    site is left out: its own broker delivers as often as the message was published.
    """
    from pyspark.sql import functions as F  # noqa: N812

    packed = statements.sent.groupBy("message_id").agg(
        F.expr("count(DISTINCT nullif(scope, ''))").alias("origins"),
        *(F.first(name).alias(name) for name in ("identity", "origin")),
        F.min("published_ms").alias("published_ms"),
        F.first("exchange").alias("of_exchange"),
    )
    leaked = (
        messages.where("leaked > 0").selectExpr("identity", "at", "true AS is_leaked").distinct()
    )
    return (
        statements.consumed.where(f"{statements.within} AND NOT is_redelivered")
        .groupBy("message_id", "is_uuid", "at", "exchange", "queue")
        .agg(F.count("at").alias("times"), F.max("at_ms").alias("delivered_ms"))
        .where("times > 1")
        .join(statements.published.select("message_id", "at"), ["message_id", "at"], "left_anti")
        .join(packed, "message_id", "left")
        .where("times > greatest(coalesce(origins, 0), 1)")
        .join(leaked, ["identity", "at"], "left")
        .selectExpr(
            "'consumed twice' AS kind",
            f"coalesce(lower(hex(identity)), CASE WHEN is_uuid THEN {_HEX} END) AS identity",
            "origin",
            "at AS destination",
            "coalesce(exchange, of_exchange) AS exchange",
            "published_ms",
            "delivered_ms",
            """concat(times, ' receipts of message_id ', message_id,
                CASE WHEN queue IS NULL THEN '' ELSE concat(' from queue ', queue) END,
                CASE WHEN is_leaked THEN '; the ledger has a leaked duplicate of it'
                     WHEN identity IS NULL THEN '; no ledger has it'
                     ELSE '; the ledger has no leaked duplicate of it' END) AS why""",
        )
    )


def consumed_unpublished(statements: Statements, reach: PublishersReach) -> DataFrame:
    """Return consumed messages without a publisher's receipt. `is_heard`: publishers of the origin
    write receipts; `is_told`: also of earlier and later messages.
    """
    from pyspark.sql import functions as F  # noqa: N812

    lacking = bool(statements.assumptions.books.incomplete or statements.assumptions.books.renewed)
    packed = statements.sent.groupBy("message_id").agg(
        *(F.first(name).alias(name) for name in ("identity", "origin")),
        F.min("published_ms").alias("published_ms"),
        F.first("exchange").alias("of_exchange"),
    )
    from_ms = statements.assumptions.period.from_ms
    return (
        statements.consumed.where(statements.within)
        .groupBy("message_id", "is_uuid", "at", "exchange")
        .agg(F.min("at_ms").alias("delivered_ms"))
        .join(statements.published.select("message_id"), "message_id", "left_anti")
        .join(packed, "message_id", "left")
        .where(
            f"CASE WHEN identity IS NULL THEN {statements.comparable()} AND {not lacking}"
            # A message that came over midnight has its receipt in the day before.
            f" ELSE published_ms >= {from_ms} END"
        )
        .withColumn("exchange", F.expr("coalesce(exchange, of_exchange)"))
        .join(F.broadcast(reach.heard), ["origin", "exchange"], "left")
        .selectExpr(
            "'consumed unpublished' AS kind",
            f"coalesce(lower(hex(identity)), CASE WHEN is_uuid THEN {_HEX} END) AS identity",
            "origin",
            "at AS destination",
            "exchange",
            "published_ms",
            "delivered_ms",
            "concat('no publisher has a receipt of message_id ', message_id,"
            " CASE WHEN identity IS NULL THEN '; no ledger has it'"
            " ELSE '; the ledger says that its origin packed it' END) AS why",
            f"identity IS NULL OR {is_heard(statements.publishers, 'origin')} AS is_heard",
            f"identity IS NULL OR {reach.IS_TOLD} AS is_told",
        )
    )


@dataclass(frozen=True, slots=True)
class Evidence:
    """Result for a period. `findings` have the columns of `verdicts.findings_of`; counts are of
    messages, consumed ones per site.
    """

    findings: DataFrame
    problems: list[LedgerProblem]
    published: int
    consumed: int
    compared: int
    """Published messages that a ledger knows."""

    def as_json(self) -> dict[str, int]:
        return {
            "published": self.published,
            "consumed": self.consumed,
            "compared": self.compared,
        }


def evidence_of(
    assumptions: Assumptions,
    receipts: DataFrame,
    packed: DataFrame,
    whole: DataFrame,
    messages: DataFrame,
) -> Evidence:
    """Compare receipts (`read_receipts`) with each other and with the packed messages. `whole`: all
    batches with their expected sites; `messages`: judged messages of opened batches.
    """
    statements = Statements(assumptions, receipts, packed)
    reach = ConsumersReach.of(statements, whole)
    missing = not_received(statements, whole, messages, reach).cache()
    strange = consumed_unpublished(statements, PublishersReach.of(statements)).cache()
    never = never_packed(statements).cache()
    found = missing.where("is_heard AND is_told").selectExpr(*COLUMNS)
    for others in (
        never.where("is_told"),
        consumed_twice(statements, messages),
        strange.where("is_heard AND is_told"),
    ):
        found = found.unionByName(others.selectExpr(*COLUMNS))
    return Evidence(
        assumptions.keep(found),
        [
            *_silent(assumptions, missing, "destination", "consumer's", "were received there"),
            *_silent(
                assumptions,
                strange,
                "origin",
                "publisher's",
                "that were received were published there",
            ),
            *_waiting(assumptions, never),
        ],
        published=_number_of_messages(statements.published.where(statements.within), "at"),
        consumed=_number_of_messages(statements.consumed.where(statements.within), "at"),
        compared=_number_of_messages(statements.known, "origin"),
    )


def _number_of_messages(rows: DataFrame, site: str) -> int:
    return int(rows.select("message_id", site).distinct().count())


def _silent(
    assumptions: Assumptions, found: DataFrame, column: str, whose: str, what: str
) -> list[LedgerProblem]:
    """Return problems of findings that the receipts cannot decide: sites (in `column`) without
    receipts, or whose receipts begin later or end before.
    """
    rows = (
        found.where("NOT (is_heard AND is_told)")
        .groupBy(column, "exchange", "is_heard")
        .count()
        .collect()
    )
    return [
        LedgerProblem(
            assumptions.names.get(site, site),
            f"{'the' if is_heard else 'no'} {whose} receipts of exchange {exchange}"
            f"{' begin later or end before' if is_heard else ''}: whether {count} messages {what}"
            " cannot be told",
            stage="receipts",
        )
        for site, exchange, is_heard, count in sorted(rows, key=str)
    ]


def _waiting(assumptions: Assumptions, never: DataFrame) -> list[LedgerProblem]:
    """Return problems of published messages in no ledger that may wait in their egress queue."""
    rows = never.where("NOT is_told").groupBy("origin", "exchange").count().collect()
    return [
        LedgerProblem(
            assumptions.names.get(origin, origin),
            f"{count} messages published{'' if exchange is None else f' to exchange {exchange}'}"
            " are in no ledger, and nothing published a minute later is: they may wait in its"
            " egress queue (see `isthmus status`); audit again when later ones have come",
            stage="receipts",
        )
        for origin, exchange, count in sorted(rows, key=str)
    ]
