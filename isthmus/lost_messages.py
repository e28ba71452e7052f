"""Lost messages, read from an audit's folder, and the second audit."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from relay.batches.batch import BatchName
from relay.operator.repair_wanted import Wanted

LOST = "lost"
AUDIT_OPTIONS = ("ledger", "receipts", "work", "master")
"""Options of an audit kept in its report."""


class BadAudit(Exception):
    """Folder that no audit has written; the text names the remedy."""


class Lost(NamedTuple):
    """Message lacking at one site. Sites are cluster IDs."""

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
        """Lower bound of the publish time (ms), or 0 if unknown."""
        if not self.published:
            return 0
        return int(datetime.fromisoformat(self.published).timestamp()) * 1000

    @property
    def place(self) -> tuple[str, int, str]:
        """Key that identifies the loss."""
        return str(self.batch), self.entry, self.destination

    def wanted(self) -> Wanted:
        return Wanted(self.batch, self.entry, self.identity, (self.destination,))


@dataclass(frozen=True, slots=True)
class AuditFolder:
    """Folder of an audit; `report` is the content of report.json."""

    folder: Path
    report: dict[str, Any]
    lost: list[Lost]

    @property
    def options(self) -> dict[str, str]:
        """Options of the audit, which the second audit repeats."""
        options: dict[str, str] = self.report.get("asked", {})
        return options

    @property
    def other_findings(self) -> dict[str, int]:
        """Counts of findings beyond repair, by kind."""
        return {kind: count for kind, count in self.report["findings"].items() if kind != LOST}


def read_audit(folder: Path) -> AuditFolder:
    """Read an audit's folder. Raises BadAudit."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        report = json.loads((folder / "report.json").read_text())
        for key in ("mesh", "from", "to", "ledger", "level", "findings", "totals", "verdict"):
            report[key]
        if any(key not in AUDIT_OPTIONS for key in report.get("asked", {})):
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


AFTER = "after-repair"
"""Subfolder for the second audit's report."""


def second_audit(
    folder: AuditFolder, file: Path, out: Path, state: Path, master: str | None
) -> list[str]:
    """Return the arguments of an audit of the same time and options; `master` replaces the first
    audit's.
    """
    report = folder.report
    # Messages left open by an earlier audit may precede the audited time.
    begin = min([report["from"], *(one.published for one in folder.lost if one.published)])
    options = {**folder.options, **({"master": master} if master else {})}
    options.setdefault("ledger", report["ledger"])
    return [
        *("audit", str(file), "--from", begin, "--to", report["to"]),
        *("--level", report["level"]),
        *(word for option, value in options.items() for word in (f"--{option}", value)),
        *("--out", str(out), "--state", str(state), "--json"),
    ]
