"""What a night's report says of earlier days."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from spark_audit.judge.verdicts import OPEN


@dataclass(frozen=True, slots=True)
class AuditedAgain:
    """An earlier day whose missing rows have come. `is_worse`: it has findings that it had not."""

    day: str
    verdict: str
    sentence: str
    is_worse: bool


@dataclass(slots=True)
class Carried:
    """`since`: the last audited day, empty where there is none. `days`: by day of publishing, what
    became of the messages that were open. `reasons`: of days, why not all of them is known.
    """

    since: str = ""
    days: dict[str, Counter[str]] = field(default_factory=dict)
    findings: dict[str, int] = field(default_factory=dict)
    waiting: list[dict[str, Any]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    again: list[AuditedAgain] = field(default_factory=list)

    @property
    def totals(self) -> Counter[str]:
        """By verdict."""
        found: Counter[str] = Counter()
        for counts in self.days.values():
            found.update(counts)
        return found

    @property
    def is_worse(self) -> bool:
        return any(one.is_worse for one in self.again)

    @property
    def told(self) -> list[str]:
        """What has become of earlier days, a line each."""
        said = [
            f"published on {day}: {', '.join(f'{n:,} {what}' for what, n in sorted(one.items()))}"
            for day, one in sorted(self.days.items())
        ]
        return said + [f"{one.day} audited again: {one.sentence}" for one in self.again]

    @property
    def why_not_proven(self) -> list[str]:
        said = list(self.reasons)
        for day, counts in sorted(self.days.items()):
            still = ", ".join(f"{counts[one]:,} are {one}" for one in OPEN if counts[one])
            if still:
                said.append(f"of messages published on {day} that were open, {still}")
        return said

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
