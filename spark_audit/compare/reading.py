"""Rows of the files that a step needs, ready for comparing or opening."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_audit.compare import batches, entries
from spark_audit.compare.assumptions import Assumptions
from spark_audit.compare.digest import uris_of
from spark_audit.compare.opened_batches import NAME, opened_messages
from spark_audit.compare.reported_positions import ranks_frame
from spark_audit.frames import no_rows
from spark_audit.judge.positions import Positions
from spark_audit.judge.verdicts import JUDGED
from spark_audit.ledgers.books import AcceptedGap
from spark_audit.ledgers.source import LedgerSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOST_SENT_TO_ALL = 1_000_000
"""Most identity hashes (8 bytes) or batch names that are sent to every task."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Result of a comparison. `messages`: judged messages of opened batches. `whole`: unopened
    batches that add up: `origin`, `expected`, `exchange`, `first_ms`, `count`.
    """

    messages: DataFrame
    whole: DataFrame
    batches: DataFrame | None = None
    """All batches with their expected sites, or None if not all were compared."""


@dataclass(slots=True)
class LedgerReading:
    """Reader of the files that count, guided by the digest (`table`)."""

    assumptions: Assumptions
    source: LedgerSource
    table: DataFrame
    positions: Positions
    ranks: DataFrame = field(init=False)
    leaked_before: DataFrame | None = field(init=False, default=None)
    """Judged messages of the last opening that were published before the period and delivered
    twice, as a copy in the period shows."""

    def __post_init__(self) -> None:
        self.ranks = ranks_frame(self.assumptions, self.positions)

    def files_of(self, blocks: DataFrame) -> set[str]:
        """Return files that have rows of these blocks."""
        return uris_of(self.table, blocks)

    def files_where(self, condition: str) -> set[str]:
        """Return files of which a digest row meets the condition."""
        found = self.table.where(condition).select("uri").distinct().collect()
        return {row["uri"] for row in found}

    def accepted_gaps(self) -> list[AcceptedGap]:
        """Return gaps that people accepted, in order of time."""
        if not (files := self.files_where("event = 'gap_accepted'")):
            return []
        rows = self.source.rows(("linked_out", "delivered"), only=files)
        accepted = rows.where("event = 'gap_accepted'").selectExpr(
            *("unix_millis(recorded) AS ms", "site", "coalesce(neighbour, '')"),
            *("coalesce(origin, '')", "coalesce(exchange, '')", "coalesce(reason, '')"),
        )
        return [AcceptedGap(*row) for row in accepted.sort("ms", "site").collect()]

    def count(self) -> int:
        """Return the number of rows of all files."""
        return int(self.table.agg({"rows": "sum"}).head()[0] or 0)

    def messages_packed(self) -> int:
        """Return the number of packed messages of all files."""
        packed = self.table.where("stage = 'packed'")
        return int(packed.agg({"messages": "sum"}).head()[0] or 0)

    def packed(self, only: Collection[str] | None = None) -> DataFrame:
        """Return packed rows of all files that count, or `only` of these."""
        rows = self.source.rows(("packed",), only=only)
        return batches.ranked(batches.packed_rows(rows, self.assumptions.level), self.ranks)

    def settled(self, only: Collection[str] | None = None) -> DataFrame:
        """Return the deliverers' rows of all files that count, or `only` of these."""
        rows = self.source.rows(("delivered",), only=only)
        return batches.settled_rows(rows, self.assumptions.cluster_of(), self.assumptions.level)

    def overtaken(self, settled: DataFrame) -> DataFrame:
        """Return rows out of order, of exchanges with an order. Repairs are left out: they come
        late by nature.
        """
        is_loose = self.assumptions.revisions.loosely_ordered().holds()
        return batches.overtaken_rows(
            settled.where(
                f"NOT is_repair AND NOT {is_loose} AND {self.assumptions.touches_period()}"
            ),
            self.ranks,
        )

    def opened(self, whole: DataFrame, odd: DataFrame, overtaken: DataFrame) -> DataFrame:
        """Return the judged messages of the batches `odd`, from the files that have them. `whole`:
        all compared batches.
        """
        if not odd.head(1):
            return self.nothing_opened()
        files = self.files_of(batches.blocks_of(whole.join(odd, [*NAME], "left_semi")))
        from_ms = self.assumptions.period.from_ms
        judged = self.assumptions.keep(
            opened_messages(
                self.assumptions,
                self.packed(files),
                self.settled(files),
                whole,
                odd,
                overtaken,
                self.positions,
            )
        )
        self.leaked_before = judged.where(f"published_ms < {from_ms}")
        return judged.where(f"published_ms >= {from_ms}")

    def nothing_opened(self) -> DataFrame:
        """Return an empty table of judged messages, for the usual day on which all adds up. A plan
        over no rows would cost a small audit as much as its whole comparison.
        """
        self.leaked_before = no_rows(self.assumptions.spark, JUDGED)
        return self.leaked_before

    def few(self, names: DataFrame) -> DataFrame:
        """Mark a kept table of batch names for broadcast if small, so that the wide rows joined
        with it are not shuffled.
        """
        from pyspark.sql import functions as F  # noqa: N812

        are_few = names.limit(_MOST_SENT_TO_ALL + 1).count() <= _MOST_SENT_TO_ALL
        return F.broadcast(names) if are_few else names

    def with_identities(self, packed: DataFrame, known_as: DataFrame) -> DataFrame:
        """Return the packed batches that have one of these identities."""
        few = known_as.limit(_MOST_SENT_TO_ALL + 1).count() <= _MOST_SENT_TO_ALL
        return entries.batches_with(packed, self.assumptions.by_origin, known_as, are_few=few)
