"""What an audit calls lost, read from the folder that it wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from relay.batches.batch import BatchName
from relay.operator.repair_wanted import Wanted

LOST = "lost"
ASKED = ("ledger", "receipts", "work", "master")
"""Options of an audit that its report tells."""


class BadAudit(Exception):
    """The folder is not what an audit wrote; the text says what to do."""


class Lost(NamedTuple):
    """One message that one site lacks. Sites are cluster IDs."""

    batch: BatchName
    entry: int
    identity: bytes
    destination: str
    published: str

    @property
    def origin(self) -> str:
        return self.batch.series.origin

    @property
    def exchange(self) -> str:
        return self.batch.series.exchange

    @property
    def published_ms(self) -> int:
        """Not after it was published; 0 where nobody knows when."""
        if not self.published:
            return 0
        return int(datetime.fromisoformat(self.published).timestamp()) * 1000

    @property
    def place(self) -> tuple[str, int, str]:
        """What tells it from all others."""
        return str(self.batch), self.entry, self.destination

    def wanted(self) -> Wanted:
        return Wanted(self.batch, self.entry, self.identity, (self.destination,))


@dataclass(frozen=True, slots=True)
class AuditFolder:
    """`report` is the content of report.json."""

    folder: Path
    report: dict[str, Any]
    lost: list[Lost]

    @property
    def asked(self) -> dict[str, str]:
        """Options that the audit was called with, whose values a repair's own audit needs too."""
        told: dict[str, str] = self.report.get("asked", {})
        return told

    @property
    def other_findings(self) -> dict[str, int]:
        """What a repair cannot mend: how many of each kind."""
        return {kind: count for kind, count in self.report["findings"].items() if kind != LOST}


def read_audit(folder: Path) -> AuditFolder:
    """Raises BadAudit."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        report = json.loads((folder / "report.json").read_text())
        for key in ("mesh", "from", "to", "ledger", "level", "findings", "totals", "verdict"):
            report[key]
        if any(key not in ASKED for key in report.get("asked", {})):
            raise ValueError("asked in a way that this version does not know")
        table = pq.read_table(folder / "findings.parquet", filters=[("kind", "=", LOST)])
        lost = [_lost(row) for row in table.to_pylist()]
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise BadAudit(
            f"{folder} is no folder that `isthmus audit` wrote ({error}): say --audit with the"
            " folder of the audit's report"
        ) from error
    return AuditFolder(folder, report, sorted(lost, key=_order))


def _lost(row: dict[str, Any]) -> Lost:
    published = row["published"]
    return Lost(
        BatchName.parse(row["batch"]),
        int(row["entry"]),
        bytes.fromhex(row["identity"]),
        str(row["destination"]),
        "" if published is None else f"{published:%Y-%m-%dT%H:%M:%S}Z",
    )


def _order(one: Lost) -> tuple[str, str, int, str]:
    return one.published, str(one.batch.series), one.batch.sequence, one.destination
