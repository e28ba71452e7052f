"""What receipts witness beside the ledgers: end to end, from before the egress to behind the queue.

What receipts and ledgers have of one message, see `testimony`; what is wrong with it, `findings`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spark_audit.compare.premises import Premises
from spark_audit.ledgers.books import Problem
from spark_audit.receipts import findings
from spark_audit.receipts.reach import ConsumersReach, PublishersReach
from spark_audit.receipts.testimony import Testimony


@dataclass(frozen=True, slots=True)
class Witness:
    """What the receipts of a period come to. `findings` as `verdicts.findings_of` has them; counts
    are of messages, a consumed one at each site by itself.
    """

    findings: Any
    problems: list[Problem]
    published: int
    consumed: int
    compared: int
    """Of the published, those that a ledger knows."""

    def as_json(self) -> dict[str, int]:
        return {
            "published": self.published,
            "consumed": self.consumed,
            "compared": self.compared,
        }


def witness(premises: Premises, receipts: Any, packed: Any, whole: Any, messages: Any) -> Witness:
    """Hold receipts (`receipts.read_receipts`) against each other and against what was packed.
    `whole`: all batches with what each was to come to; `messages`: those that were opened, judged.
    """
    said = Testimony(premises, receipts, packed)
    reach = ConsumersReach.of(said, whole)
    missing = findings.not_received(said, whole, messages, reach).cache()
    unpublished = findings.unpublished(said, PublishersReach.of(said)).cache()
    never = findings.never_packed(said).cache()
    found = missing.where("is_heard AND is_told").selectExpr(*findings.COLUMNS)
    for others in (
        never.where("is_told"),
        findings.twice(said, messages),
        unpublished.where("is_heard AND is_told"),
    ):
        found = found.unionByName(others.selectExpr(*findings.COLUMNS))
    return Witness(
        premises.keep(found),
        [
            *_silent(premises, missing, "destination", "consumer's", "were received there"),
            *_silent(
                premises,
                unpublished,
                "origin",
                "publisher's",
                "that were received were published there",
            ),
            *_waiting(premises, never),
        ],
        published=said.published.where(said.within).select("message_id", "at").distinct().count(),
        consumed=said.consumed.where(said.within).select("message_id", "at").distinct().count(),
        compared=said.known.select("message_id", "origin").distinct().count(),
    )


def _silent(premises: Premises, found: Any, column: str, whose: str, what: str) -> list[Problem]:
    """Of what was found, that nobody can tell it: sites (of this column) without such receipts, or
    whose receipts begin later or end before.
    """
    rows = (
        found.where("NOT (is_heard AND is_told)")
        .groupBy(column, "exchange", "is_heard")
        .count()
        .collect()
    )
    return [
        Problem(
            premises.names.get(site, site),
            f"{'the' if is_heard else 'no'} {whose} receipts of exchange {exchange}"
            f"{' begin later or end before' if is_heard else ''}: whether {count} messages {what}"
            " cannot be told",
            stage="receipts",
        )
        for site, exchange, is_heard, count in sorted(rows, key=str)
    ]


def _waiting(premises: Premises, never: Any) -> list[Problem]:
    """What was published and is in no ledger, and may be on its way from its exchange into one."""
    rows = never.where("NOT is_told").groupBy("origin", "exchange").count().collect()
    return [
        Problem(
            premises.names.get(origin, origin),
            f"{count} messages published{'' if exchange is None else f' to exchange {exchange}'}"
            " are in no ledger, and nothing published a minute later is: they may wait in its"
            " egress queue (see `isthmus status`); audit again when later ones have come",
            stage="receipts",
        )
        for origin, exchange, count in sorted(rows, key=str)
    ]
