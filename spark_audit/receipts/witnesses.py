"""What receipts witness beside the ledgers: end to end, from before the egress to behind the queue.

What receipts and ledgers have of one message, see `testimony`; what is wrong with it, `findings`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spark_audit.compare.premises import Premises
from spark_audit.ledgers.books import Problem
from spark_audit.receipts import findings
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
    missing = findings.not_received(said, whole, messages).cache()
    unpublished = findings.unpublished(said).cache()
    found = missing.where("is_heard").selectExpr(*findings.COLUMNS)
    for others in (
        findings.never_packed(said),
        findings.twice(said, messages),
        unpublished.where("is_heard"),
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
        ],
        published=said.published.where(said.within).select("message_id", "at").distinct().count(),
        consumed=said.consumed.where(said.within).select("message_id", "at").distinct().count(),
        compared=said.known.select("message_id", "origin").distinct().count(),
    )


def _silent(premises: Premises, found: Any, column: str, whose: str, what: str) -> list[Problem]:
    """Of what was found, that nobody can tell it: sites (of this column) without such receipts."""
    rows = found.where("NOT is_heard").groupBy(column, "exchange").count().collect()
    return [
        Problem(
            premises.names.get(site, site),
            f"no {whose} receipts of exchange {exchange}: whether {count} messages {what} cannot"
            " be told",
            stage="receipts",
        )
        for site, exchange, count in sorted((row[0], row[1], row[2]) for row in rows)
    ]
