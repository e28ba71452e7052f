"""Statements of receipts, joined with the same messages in the ledgers.

A receipt names a message by its message_id, a ledger by its identity. Where an exchange takes its
identity from elsewhere, or a message_id is not the UUID it should be, the two cannot be compared,
and no finding is made. The expected sites of a message are those of its batch.

A UUID is the same in either case, and as a URN: the message-id of an AMQP 1.0 publisher, a UUID, is
`urn:uuid:...` for a consumer by AMQP 0-9-1.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from federation.mesh import IdentityKind
from relay.ledger.rows import IDENTITY_BYTES
from spark_audit.compare import entries
from spark_audit.compare.assumptions import Assumptions
from spark_audit.judge.expectation import sql_texts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_UUID = r"(?i)\A(?:urn:uuid:)?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\z"
"""Texts of which `dedup.identity.uuid_of` makes an identity; the group is the bare UUID."""


class Statements:
    """Receipts (`read_receipts`) compared with the packed messages.

    `message_id` is as in the receipts, but of a UUID its bare form in lower case.

    `published`: one row per message, site and exchange, with the first `at_ms`. `consumed`: every
    receipt. `sent`: their messages as `entries.sent_entries`, with `message_id`. `known`: published
    messages of the period that the ledger has. `within`: SQL, true if a receipt is of the period.
    `publishers`, `consumers`: (site, exchange) with receipts; exchange None stands for any.
    """

    def __init__(self, assumptions: Assumptions, receipts: DataFrame, packed: DataFrame) -> None:
        from pyspark.sql import functions as F  # noqa: N812

        period = assumptions.period
        self.assumptions = assumptions
        self._exchanges = {
            name: exchange.identity.kind
            for name, exchange in assumptions.revisions.exchanges().items()
        }
        self.within = f"at_ms >= {period.from_ms} AND at_ms < {period.to_ms}"
        text, is_uuid = F.col("message_id"), F.col("message_id").rlike(_UUID)
        plain = F.when(is_uuid, F.lower(F.regexp_extract(text, _UUID, 1))).otherwise(text)
        named = receipts.withColumns({"text": text, "is_uuid": is_uuid, "message_id": plain})
        self.published = (
            named.where("is_published")
            .groupBy("message_id", "is_uuid", "at", "exchange")
            .agg(F.min("at_ms").alias("at_ms"), F.max("is_confirmed").alias("is_confirmed"))
            .cache()
        )
        self.consumed = named.where("NOT is_published").cache()
        self.sent = self._sent(packed, named).cache()
        self.known = self._known().cache()
        self.publishers = _heard(self.published)
        self.consumers = _heard(self.consumed)

    def _sent(self, packed: DataFrame, receipts: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        named = receipts.where("is_uuid").select("message_id").distinct()
        ids = named.selectExpr(
            "message_id",
            f"'{IdentityKind.UUID}' AS goes_by",
            "unhex(replace(message_id, '-', '')) AS identity",
        )
        if IdentityKind.MESSAGE_ID in self._exchanges.values():
            by_text = F.lit(str(IdentityKind.MESSAGE_ID)).alias("goes_by")
            texts = receipts.select("message_id", "text").distinct()
            ids = ids.unionByName(
                texts.select("message_id", by_text, _text_identity()("text").alias("identity"))
            )
        return (
            entries.sent_entries(packed, self.assumptions.by_origin)
            .withColumn("goes_by", self._goes_by())
            .join(ids, ["goes_by", "identity"])
        )

    @property
    def exchanges(self) -> list[str]:
        return list(self._exchanges)

    def _goes_by(self) -> Column:
        from pyspark.sql import functions as F  # noqa: N812

        pairs = [F.lit(str(part)) for pair in self._exchanges.items() for part in pair]
        return F.create_map(*pairs)[F.col("exchange")] if pairs else F.lit("")

    def _known(self) -> DataFrame:
        """Return published messages with receipts that their site packed within the period, by the
        ledger's time, as everywhere.
        """
        period = self.assumptions.period
        published = self.published.selectExpr(
            "message_id", "at AS origin", "exchange AS said_exchange", "at_ms", "is_confirmed"
        )
        return (
            self.sent.where(f"published_ms >= {period.from_ms} AND published_ms < {period.to_ms}")
            .join(published, ["message_id", "origin"])
            .where("said_exchange IS NULL OR said_exchange = exchange")
        )

    def comparable(self) -> str:
        """Return SQL: true if a ledger would know a receipt's message by its message_id."""
        by_uuid = [name for name, kind in self._exchanges.items() if kind is IdentityKind.UUID]
        by_text = [
            name for name, kind in self._exchanges.items() if kind is IdentityKind.MESSAGE_ID
        ]
        if len(by_uuid) + len(by_text) < len(self._exchanges):
            without_exchange = "false"  # it may be of an exchange that goes by something else
        else:
            without_exchange = "is_uuid" if by_uuid else "true"
        return (
            f"CASE WHEN exchange IS NULL THEN {without_exchange}"
            f" WHEN {one_of('exchange', by_uuid)} THEN is_uuid"
            f" ELSE {one_of('exchange', by_text)} END"
        )


def _heard(receipts: DataFrame) -> set[tuple[str, str | None]]:
    return {(row[0], row[1]) for row in receipts.select("at", "exchange").distinct().collect()}


def is_heard(heard: set[tuple[str, str | None]], column: str) -> str:
    """Return SQL: true if the site in `column` has receipts of the row's exchange, or of any."""
    of_any = sorted(site for site, exchange in heard if exchange is None)
    of_one = sorted(f"{site}\n{exchange}" for site, exchange in heard if exchange is not None)
    by_both = one_of(f"concat({column}, '\\n', exchange)", of_one)
    return f"coalesce({one_of(column, of_any)} OR {by_both}, false)"


def one_of(column: str, values: list[str]) -> str:
    """Return SQL: true if the column has one of these values."""
    if not values:
        return "false"
    return f"{column} IN ({sql_texts(values)})"


def _text_identity() -> Any:
    """Return a function that hashes a text as `identity: message_id` does. Spark lacks the hash, so
    only receipts of such exchanges pass through Python.
    """
    from pyspark.sql import functions as F  # noqa: N812

    size = IDENTITY_BYTES

    # A closure is sent to the executors, which need not have this package.
    def identity_of(text: str) -> bytes:
        return blake2b(text.encode(), digest_size=size).digest()

    return F.udf(identity_of, "binary")
