"""Reach of receipts: the range of messages that a witness covers.

A consumer's file that ends at noon is no evidence about later messages. The reach follows from the
named messages, by the ledger's clocks: a queue hands out messages in order, so that receipts of an
earlier and a later message imply one of any message between. All receipts of a site and exchange
count as one witness.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from spark_audit.receipts.statements import Statements

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class ConsumersReach:
    """Reach of consumers. `came`: time range of the delivery by message, destination and exchange,
    `came_from` to `came_to` (a row covers many messages). `heard`: times of the first and last
    message with a receipt by destination and exchange, `heard_from` and `heard_to`.
    """

    came: DataFrame
    heard: DataFrame

    @classmethod
    def of(cls, statements: Statements, whole: DataFrame) -> ConsumersReach:
        """Build from receipts. `whole`: all batches with their settlements (`batches.together`)."""
        from pyspark.sql import functions as F  # noqa: N812

        places = "transform(filter(places, p -> p.at = destination), p -> p.recorded_ms)"
        came = (
            statements.sent.join(
                whole.select("series", "sequence", "expected", "places"), ["series", "sequence"]
            )
            .withColumn("destination", F.explode("expected"))
            .withColumn("at_ms", F.expr(places))
            .groupBy("message_id", "destination", "exchange")
            .agg(
                F.min(F.expr("array_min(at_ms)")).alias("came_from"),
                F.max(F.expr("array_max(at_ms)")).alias("came_to"),
            )
            .where("came_to IS NOT NULL")
            .cache()
        )
        receipts = statements.consumed.selectExpr(
            "message_id AS heard_id", "at AS heard_at", "exchange AS heard_by"
        ).distinct()
        heard = (
            came.join(
                receipts,
                F.expr(
                    "message_id = heard_id AND destination = heard_at"
                    " AND (heard_by IS NULL OR heard_by = exchange)"
                ),
                "left_semi",
            )
            .groupBy("destination", "exchange")
            .agg(F.min("came_to").alias("heard_from"), F.max("came_from").alias("heard_to"))
        )
        return cls(came, heard)

    @staticmethod
    def is_told(otherwise: str) -> str:
        """Return SQL over both tables: true if the witness would have the message. `otherwise`:
        another condition for trusting the witness. A message that came by another batch has a time
        of its own, `delivered_ms`.
        """
        begin, end = "coalesce(delivered_ms, came_from)", "coalesce(delivered_ms, came_to)"
        return f"{otherwise} OR coalesce({begin} > heard_from AND {end} < heard_to, false)"


@dataclass(frozen=True, slots=True)
class PublishersReach:
    """Reach of publishers. `heard`: times at which the first and last message with a publisher's
    receipt left its exchange, by origin and exchange.
    """

    heard: DataFrame
    IS_TOLD: ClassVar[str] = (
        "coalesce(published_ms > heard_from AND published_ms < heard_to, false)"
    )

    @classmethod
    def of(cls, statements: Statements) -> PublishersReach:
        from pyspark.sql import functions as F  # noqa: N812

        return cls(
            _published(statements)
            .groupBy("origin", "exchange")
            .agg(F.min("published_ms").alias("heard_from"), F.max("published_ms").alias("heard_to"))
        )


def packed_to(statements: Statements) -> DataFrame:
    """Return `packed_to_ms` by `to_at`, `to_by`: the latest receipt time of the exchange's packed
    messages at the site. A null exchange stands for receipts without one, and has the time of the
    exchange furthest behind.
    """
    from pyspark.sql import functions as F  # noqa: N812

    latest = _published(statements).groupBy("origin", "exchange").agg(F.max("at_ms")).collect()
    by_site: dict[str, dict[str, int]] = {}
    for origin, exchange, ms in latest:
        by_site.setdefault(origin, {})[exchange] = ms
    rows: list[tuple[str, str | None, int]] = []
    for origin, to_ms in by_site.items():
        rows += [(origin, exchange, ms) for exchange, ms in to_ms.items()]
        if to_ms.keys() >= set(statements.exchanges):
            rows.append((origin, None, min(to_ms.values())))
    table = statements.assumptions.frame(
        rows, {"to_at": "string", "to_by": "string", "packed_to_ms": "long"}
    )
    return table.select("to_at", "to_by", F.col("packed_to_ms"))


def _published(statements: Statements) -> DataFrame:
    """Return packed messages that have a publisher's receipt at their origin, with its `at_ms`."""
    receipts = statements.published.selectExpr(
        "message_id", "at AS origin", "exchange AS said_exchange", "at_ms"
    )
    return statements.sent.join(receipts, ["message_id", "origin"]).where(
        "said_exchange IS NULL OR said_exchange = exchange"
    )
