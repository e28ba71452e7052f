"""What an audit comes to: the verdict, what is behind it, as text, JSON and tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from spark_audit.books import Problem
from spark_audit.period import Period

FORMAT = 1


class AuditVerdict(StrEnum):
    PROVEN = "proven"
    FINDINGS = "findings"
    NOT_PROVEN = "not proven"

    @property
    def exit_status(self) -> int:
        """What is wrong goes before what is not known; both are told."""
        return {"proven": 0, "findings": 1, "not proven": 2}[self.value]


class PairMinute(NamedTuple):
    """How many messages of one minute of publishing have a verdict. Sites are cluster IDs."""

    origin: str
    destination: str
    exchange: str
    minute_ms: int
    verdict: str
    messages: int


@dataclass(frozen=True, slots=True)
class AuditReport:
    """`names`: cluster ID -> site name. `table`: all findings of messages, as a DataFrame."""

    mesh: str
    revision: str
    period: Period
    ledger: str
    names: Mapping[str, str]
    counts: list[PairMinute]
    findings: dict[str, int]
    shown: list[dict[str, Any]]
    waiting: list[dict[str, Any]]
    problems: list[Problem]
    table: Any

    @property
    def totals(self) -> Counter[str]:
        """Messages by verdict, each counted once a destination."""
        found: Counter[str] = Counter()
        for one in self.counts:
            found[one.verdict] += one.messages
        return found

    @property
    def pairs(self) -> dict[tuple[str, str], Counter[str]]:
        """The same by origin and destination, by site name."""
        found: dict[tuple[str, str], Counter[str]] = {}
        for one in self.counts:
            pair = self.name(one.origin), self.name(one.destination)
            found.setdefault(pair, Counter())[one.verdict] += one.messages
        return dict(sorted(found.items()))

    @property
    def why_not_proven(self) -> list[str]:
        totals = self.totals
        said = [str(problem) for problem in self.problems]
        if totals["pending"]:
            said.append(f"{totals['pending']} messages are still on their way")
        if totals["unproven"]:
            said.append(
                f"of {totals['unproven']} messages it cannot be told, since rows are missing"
            )
        return said

    @property
    def verdict(self) -> AuditVerdict:
        if any(self.findings.values()):
            return AuditVerdict.FINDINGS
        if self.why_not_proven:
            return AuditVerdict.NOT_PROVEN
        return AuditVerdict.PROVEN

    def name(self, cluster: str) -> str:
        return self.names.get(cluster, cluster)

    def as_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "verdict": self.verdict.value,
            "mesh": self.mesh,
            "revision": self.revision,
            "from": _time(self.period.from_ms),
            "to": _time(self.period.to_ms),
            "ledger": self.ledger,
            "totals": dict(sorted(self.totals.items())),
            "pairs": [
                {"origin": origin, "destination": destination, "counts": dict(counts)}
                for (origin, destination), counts in self.pairs.items()
            ],
            "findings": dict(sorted(self.findings.items())),
            "shown": [self._finding(one) for one in self.shown],
            "waiting": [
                {
                    "origin": self.name(one["origin"]),
                    "destination": self.name(one["destination"]),
                    "exchange": one["exchange"],
                    "messages": one["messages"],
                    "since": _time(one["since_ms"]),
                }
                for one in self.waiting
            ],
            "why_not_proven": self.why_not_proven,
            "problems": [
                {"site": one.site, "file": one.file, "stage": one.stage, "what": one.what}
                for one in self.problems
            ],
        }

    def _finding(self, one: Mapping[str, Any]) -> dict[str, Any]:
        said = dict(one)
        said["origin"] = self.name(said["origin"])
        said["destination"] = self.name(said["destination"])
        for key in ("published", "delivered"):
            if said[key] is not None:
                said[key] = _time(said[key])
        return said

    def write(self, folder: Path) -> None:
        """report.json, and the tables findings.parquet and counts.parquet."""
        folder.mkdir(parents=True, exist_ok=True)
        self.table.coalesce(1).write.mode("overwrite").parquet(str(folder / "findings.parquet"))
        spark = self.table.sparkSession
        spark.createDataFrame(
            self.counts,
            "origin string, destination string, exchange string, minute_ms long, verdict string,"
            " messages long",
        ).coalesce(1).write.mode("overwrite").parquet(str(folder / "counts.parquet"))
        temporary = folder / "report.json.new"
        temporary.write_text(json.dumps(self.as_json(), indent=1) + "\n")
        temporary.replace(folder / "report.json")


def _time(ms: int) -> str:
    return (
        datetime.fromtimestamp(ms / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
