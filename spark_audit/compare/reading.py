"""The rows that a step needs, of the files that have them, ready to be compared or opened."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from spark_audit.compare import batches, entries
from spark_audit.compare.assumptions import Assumptions
from spark_audit.compare.digest import uris_of
from spark_audit.compare.opened_batches import NAME, opened_messages
from spark_audit.compare.reported_positions import ranks_frame
from spark_audit.engine.frames import no_rows
from spark_audit.judge.positions import Positions
from spark_audit.judge.verdicts import JUDGED
from spark_audit.ledgers.books import AcceptedGap
from spark_audit.ledgers.source import LedgerSource

_MOST_SENT_TO_ALL = 1_000_000
"""Identities of 8 bytes, or names of batches, that every task may be given as a table."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What comparing comes to. `messages`: judged, of what was opened. `whole`: of what adds up and
    was not opened, `origin`, `expected`, `exchange`, `first_ms`, `count`.
    """

    messages: Any
    whole: Any
    batches: Any = None
    """All batches of the files, with what each was to come to, where all were compared."""


@dataclass(slots=True)
class LedgerReading:
    """Reads by the digest (`table`), of the files that count."""

    assumptions: Assumptions
    source: LedgerSource
    table: Any
    positions: Positions
    ranks: Any = field(init=False)
    leaked_before: Any = field(init=False, default=None)
    """Judged messages published before the period that were delivered twice, of what was opened
    last: a copy of the period showed them."""

    def __post_init__(self) -> None:
        self.ranks = ranks_frame(self.assumptions, self.positions)

    def files_of(self, blocks: Any) -> set[str]:
        """Those that have rows of these blocks."""
        return uris_of(self.table, blocks)

    def files_where(self, condition: str) -> set[str]:
        """Those of which the digest says so."""
        found = self.table.where(condition).select("uri").distinct().collect()
        return {row["uri"] for row in found}

    def accepted_gaps(self) -> list[AcceptedGap]:
        """What people have said of gaps in the time of these files, in its order."""
        if not (files := self.files_where("event = 'gap_accepted'")):
            return []
        rows = self.source.rows(("linked_out", "delivered"), only=files)
        told = rows.where("event = 'gap_accepted'").selectExpr(
            *("unix_millis(recorded) AS ms", "site", "coalesce(neighbour, '')"),
            *("coalesce(origin, '')", "coalesce(exchange, '')", "coalesce(reason, '')"),
        )
        return [AcceptedGap(*row) for row in told.sort("ms", "site").collect()]

    def count(self) -> int:
        """Of all rows."""
        return int(self.table.agg({"rows": "sum"}).head()[0] or 0)

    def messages_packed(self) -> int:
        """Of all files that count."""
        packed = self.table.where("stage = 'packed'")
        return int(packed.agg({"messages": "sum"}).head()[0] or 0)

    def packed(self, only: Collection[str] | None = None) -> Any:
        """Of all files that count, or `only` of these."""
        rows = self.source.rows(("packed",), only=only)
        return batches.ranked(batches.packed_rows(rows, self.assumptions.level), self.ranks)

    def settled(self, only: Collection[str] | None = None) -> Any:
        """The same of what deliverers did."""
        rows = self.source.rows(("delivered",), only=only)
        return batches.settled_rows(rows, self.assumptions.cluster_of(), self.assumptions.level)

    def overtaken(self, settled: Any) -> Any:
        """Rows out of order, where there is to be one. A repair comes late by nature."""
        is_loose = self.assumptions.revisions.loosely_ordered().holds()
        return batches.overtaken_rows(
            settled.where(
                f"NOT is_repair AND NOT {is_loose} AND {self.assumptions.touches_period()}"
            ),
            self.ranks,
        )

    def opened(self, whole: Any, odd: Any, overtaken: Any) -> Any:
        """The messages of the batches `odd`, of the files that have them. `whole`: all batches that
        were compared.
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

    def nothing_opened(self) -> Any:
        """The same of a day on which all adds up, as most do: without a plan over no rows, which
        costs a small audit as much as its whole comparison.
        """
        self.leaked_before = no_rows(self.assumptions.spark, JUDGED)
        return self.leaked_before

    def few(self, names: Any) -> Any:
        """Names of batches, kept already, so that what is joined with them is not moved about for
        it: its rows have all that is packed in them.
        """
        from pyspark.sql import functions as F  # noqa: N812

        are_few = names.limit(_MOST_SENT_TO_ALL + 1).count() <= _MOST_SENT_TO_ALL
        return F.broadcast(names) if are_few else names

    def with_identities(self, packed: Any, known_as: Any) -> Any:
        """The packed batches in which one of these identities stands."""
        few = known_as.limit(_MOST_SENT_TO_ALL + 1).count() <= _MOST_SENT_TO_ALL
        return entries.batches_with(packed, self.assumptions.by_origin, known_as, are_few=few)
