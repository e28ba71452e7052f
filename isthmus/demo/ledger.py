"""What a site's ledger says, summed for the demo's last table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from relay.ledger.rows import OUTCOME_MASK, Outcome


@dataclass(slots=True)
class LedgerCounts:
    """By origin (cluster ID)."""

    delivered: Counter[str] = field(default_factory=Counter)
    suppressed: Counter[str] = field(default_factory=Counter)


def read_counts(folder: Path) -> LedgerCounts:
    """Sum the `delivered` rows of all files of a ledger."""
    import pyarrow.parquet as pq

    counts = LedgerCounts()
    for file in sorted(folder.glob("date=*/delivered-*.parquet")):
        table = pq.ParquetFile(file).read(columns=["origin", "outcomes"])
        for origin, outcomes in zip(*(column.to_pylist() for column in table.columns), strict=True):
            for outcome in outcomes or b"":
                if outcome & OUTCOME_MASK == Outcome.DUPLICATE:
                    counts.suppressed[origin] += 1
                elif outcome & OUTCOME_MASK == Outcome.DELIVERED:
                    counts.delivered[origin] += 1
    return counts
