"""Outcome of an audit: the verdict and its evidence, as text and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_audit.compare.latency import Latency
from spark_audit.judge.verdicts import OPEN
from spark_audit.ledgers.books import AcceptedGap, LedgerProblem
from spark_audit.level import Level
from spark_audit.period import Period, json_time
from spark_audit.report.advice import by_gravity

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class AuditedAgain:
    """Earlier day audited again once missing rows had come. `is_worse`: True if it has new
    findings.
    """

    day: str
    verdict: str
    sentence: str
    is_worse: bool


@dataclass(slots=True)
class EarlierDays:
    """Outcome of earlier days. `since`: last audited day, or empty. `days`: day of publishing ->
    verdicts of its open messages. `reasons`: reasons why days stay unproven.
    """

    since: str = ""
    days: dict[str, Counter[str]] = field(default_factory=dict)
    findings: dict[str, int] = field(default_factory=dict)
    waiting: list[dict[str, Any]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    again: list[AuditedAgain] = field(default_factory=list)

    @property
    def totals(self) -> Counter[str]:
        """Messages by verdict."""
        found: Counter[str] = Counter()
        for counts in self.days.values():
            found.update(counts)
        return found

    @property
    def is_worse(self) -> bool:
        return any(one.is_worse for one in self.again)

    @property
    def lines(self) -> list[str]:
        """Lines on the outcome of earlier days."""
        lines = [
            f"published on {day}: {', '.join(f'{n:,} {what}' for what, n in sorted(one.items()))}"
            for day, one in sorted(self.days.items())
        ]
        return lines + [f"{one.day} audited again: {one.sentence}" for one in self.again]

    @property
    def why_not_proven(self) -> list[str]:
        reasons = list(self.reasons)
        for day, counts in sorted(self.days.items()):
            still = ", ".join(f"{counts[one]:,} are {one}" for one in OPEN if counts[one])
            if still:
                reasons.append(f"of messages published on {day} that were open, {still}")
        return reasons

    def as_json(self) -> dict[str, Any]:
        return {
            "since": self.since or None,
            "days": {day: dict(sorted(one.items())) for day, one in sorted(self.days.items())},
            "findings": dict(sorted(self.findings.items())),
            "reasons": self.reasons,
            "audited_again": [
                {"date": one.day, "verdict": one.verdict, "sentence": one.sentence}
                for one in self.again
            ],
        }


FORMAT = 1
_PLACES = 5
"""Most waiting places in a line."""


class AuditVerdict(StrEnum):
    PROVEN = "proven"
    FINDINGS = "findings"
    NOT_PROVEN = "not proven"

    @property
    def exit_status(self) -> int:
        """Exit status; findings outrank unproven messages, though both are reported."""
        return {"proven": 0, "findings": 1, "not proven": 2}[self.value]


class PairMinute(NamedTuple):
    """Number of messages with a verdict, by minute of publishing. Sites are cluster IDs."""

    origin: str
    destination: str
    exchange: str
    minute_ms: int
    verdict: str
    messages: int


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Outcome of one audit. `names`: cluster ID -> site name. `table`: all findings, as a
    DataFrame.
    """

    mesh: str
    revision: str
    period: Period
    ledger: str
    names: Mapping[str, str]
    counts: list[PairMinute]
    findings: dict[str, int]
    shown: list[dict[str, Any]]
    waiting: list[dict[str, Any]]
    problems: list[LedgerProblem]
    table: DataFrame
    latencies: list[Latency] = field(default_factory=list)
    timed_every: int = 1
    """Minutes of which one was measured for `latencies`."""
    receipts: dict[str, int] | None = None
    """Message counts of receipts, see `evidence.Evidence`, or None without receipts."""
    level: Level = Level.EXACT
    left: Any = None
    """Open messages, as a DataFrame (`open_messages`)."""
    leaked_before: DataFrame | None = None
    """Judged messages of earlier days that came twice, as a copy in the period shows."""
    revisions_unknown: list[str] = field(default_factory=list)
    """Revisions of batches that no ledger has."""
    accepted_gaps: list[AcceptedGap] = field(default_factory=list)
    """Gaps that people accepted: their messages are lost unless they came another way."""
    asked: Mapping[str, str] = field(default_factory=dict)
    """Options that repeat the call; empty if no command made it."""
    carried: EarlierDays | None = None
    """Outcome of earlier days, or None for an audit of its own."""

    @property
    def totals(self) -> Counter[str]:
        """Messages by verdict, counted once a destination."""
        found: Counter[str] = Counter()
        for one in self.counts:
            found[one.verdict] += one.messages
        return found

    @property
    def pairs(self) -> dict[tuple[str, str], Counter[str]]:
        """Messages by verdict for each (origin, destination), by site name."""
        found: dict[tuple[str, str], Counter[str]] = {}
        for one in self.counts:
            pair = self.name(one.origin), self.name(one.destination)
            found.setdefault(pair, Counter())[one.verdict] += one.messages
        return dict(sorted(found.items()))

    @property
    def why_not_proven(self) -> list[str]:
        totals = self.totals
        reasons = [str(problem) for problem in self.problems]
        if totals["pending"]:
            reasons.append(
                f"{totals['pending']} messages are still on their way{self._waiting_for()}"
            )
        if totals["unproven"]:
            reasons.append(
                f"of {totals['unproven']} messages it cannot be told, since rows are missing"
            )
        if self.carried is not None:
            reasons += self.carried.why_not_proven
        return reasons

    def _waiting_for(self) -> str:
        places: Counter[str] = Counter()
        for one in self.waiting:
            places[" or ".join(one["waits_for"])] += one["messages"]
        texts = [f"{count} wait for {place}" for place, count in places.most_common(_PLACES)]
        more = len(places) - len(texts)
        return f": {', '.join(texts)}{f' and {more} other places' if more else ''}" if texts else ""

    @property
    def verdict(self) -> AuditVerdict:
        if any(self.findings.values()) or (self.carried is not None and self.carried.is_worse):
            return AuditVerdict.FINDINGS
        if self.why_not_proven:
            return AuditVerdict.NOT_PROVEN
        return AuditVerdict.PROVEN

    @property
    def sentence(self) -> str:
        """Verdict as a sentence for people."""
        totals = self.totals
        arrived = totals["delivered"] + totals["late"]
        about = f"messages published from {self.period}"
        if self.verdict is AuditVerdict.FINDINGS:
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in by_gravity(self.findings))
            also = " (and not all of it can be told)" if self.why_not_proven else ""
            if self.carried is not None and any(self.carried.findings.values()):
                about += f" and {sum(self.carried.findings.values()):,} of earlier days"
            again = [one.day for one in self.carried.again if one.is_worse] if self.carried else []
            if again:
                kinds = f"{kinds or 'none'}; more on {', '.join(again)}, audited again"
            return f"FINDINGS: {kinds}, of {about}{also}"
        by = " by fingerprints" if self.level is Level.FINGERPRINT else ""
        if self.verdict is AuditVerdict.NOT_PROVEN:
            return (
                f"NOT PROVEN: {arrived:,} deliveries are in order, of {about}; what lacks is listed"
            )
        return f"PROVEN{by}: all {about} arrived, {arrived:,} deliveries, or it is known why not"

    def name(self, cluster: str) -> str:
        return self.names.get(cluster, cluster)

    def as_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "verdict": self.verdict.value,
            "sentence": self.sentence,
            "mesh": self.mesh,
            "revision": self.revision,
            "from": json_time(self.period.from_ms),
            "to": json_time(self.period.to_ms),
            "ledger": self.ledger,
            "level": self.level.value,
            "asked": dict(self.asked),
            "not_told": self.level.blind_spots,
            "totals": dict(sorted(self.totals.items())),
            "pairs": [
                {"origin": origin, "destination": destination, "counts": dict(counts)}
                for (origin, destination), counts in self.pairs.items()
            ],
            "latencies": [
                {
                    **one._asdict(),
                    "source": self.name(one.source),
                    "target": self.name(one.target),
                }
                for one in self.latencies
            ],
            "timed_every_minutes": self.timed_every,
            "receipts": self.receipts,
            "carried": self.carried.as_json() if self.carried else None,
            "findings": dict(sorted(self.findings.items())),
            "shown": [self._finding(one) for one in self.shown],
            "waiting": [
                {
                    "origin": self.name(one["origin"]),
                    "destination": self.name(one["destination"]),
                    "exchange": one["exchange"],
                    "waits_for": one["waits_for"],
                    "messages": one["messages"],
                    "since": json_time(one["since_ms"]),
                }
                for one in [*self.waiting, *(self.carried.waiting if self.carried else ())]
            ],
            "accepted_gaps": [
                {
                    "site": one.site,
                    "neighbour": one.neighbour,
                    "origin": self.name(one.origin),
                    "exchange": one.exchange,
                    "recorded": json_time(one.ms),
                    "why": one.why,
                }
                for one in self.accepted_gaps
            ],
            "why_not_proven": self.why_not_proven,
            "problems": [
                {"site": one.site, "file": one.file, "stage": one.stage, "what": one.what}
                for one in self.problems
            ],
        }

    def _finding(self, one: Mapping[str, Any]) -> dict[str, Any]:
        finding = dict(one)
        finding["origin"] = self.name(finding["origin"])
        finding["destination"] = self.name(finding["destination"])
        for key in ("published", "delivered"):
            if finding[key] is not None:
                finding[key] = json_time(finding[key])
        return finding
