"""Audited day as later nights know it: its open days, and the days for which it speaks. Pure.

A night judges its own day and looks again at what earlier days left open. So the newest night that
judged a day speaks for the day: mostly the night before, or a night that was audited again since.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from spark_audit.judge.positions import SeenIncarnation

CARRIED_DAYS = 7
"""Days for which a message is looked for again, or the outage window if longer."""


@dataclass(frozen=True, slots=True)
class OpenDay:
    """Day with unknown outcomes. `sites`: names of sites whose ledgers lacked rows; empty if only
    an audit of that day can settle it (damaged tables, for instance).
    """

    day: str
    why: str
    sites: tuple[str, ...] = ()
    is_short: tuple[str, ...] = ()
    """Sites among `sites` whose rows ended before the day did."""

    def as_json(self) -> dict[str, Any]:
        return {
            "day": self.day,
            "why": self.why,
            "sites": list(self.sites),
            "is_short": list(self.is_short),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> OpenDay:
        sites, is_short = tuple(content["sites"]), tuple(content["is_short"])
        return cls(content["day"], content["why"], sites, is_short)


@dataclass(frozen=True, slots=True)
class Night:
    """Row of the table `nights`. `open`: number of rows in `pending`."""

    day: str
    ran_ms: int
    verdict: str
    findings: int
    open: int
    open_days: tuple[OpenDay, ...] = ()
    incarnations: tuple[SeenIncarnation, ...] = ()
    """Order of incarnations, which outlasts their files."""

    def kept(self) -> str:
        """Return JSON of the fields that only later nights read."""
        return json.dumps(
            {
                "open_days": [one.as_json() for one in self.open_days],
                "incarnations": self.incarnations,
            }
        )

    @classmethod
    def of(cls, day: str, ran_ms: int, verdict: str, findings: int, left: int, kept: str) -> Night:
        """Parse a row. Raises ValueError, KeyError, TypeError if `kept` is malformed."""
        content = json.loads(kept)
        return cls(
            day,
            ran_ms,
            verdict,
            findings,
            left,
            tuple(OpenDay.from_json(one) for one in content["open_days"]),
            tuple(
                SeenIncarnation(str(origin), str(incarnation), str(state), int(number), int(ms))
                for origin, incarnation, state, number, ms in content["incarnations"]
            ),
        )


def speakers(nights: Iterable[Night], before: str) -> list[tuple[Night, str]]:
    """Return the nights that speak for days before `before`, each with the day after which it
    speaks, up to its own.
    """
    found: list[tuple[Night, str]] = []
    after = ""
    earlier = [one for one in nights if one.day < before]
    while rest := [one for one in earlier if one.day > after]:
        newest = max(rest, key=lambda one: (one.ran_ms, one.day))
        found.append((newest, after))
        after = newest.day
    return found


def still_open(spoken: Sequence[tuple[Night, str]]) -> list[OpenDay]:
    """Return days with unknown outcomes, as the speaking nights report them."""
    return [
        one for night, after in spoken for one in night.open_days if after < one.day <= night.day
    ]


def skipped(days: Iterable[str], before: str, since: str) -> list[str]:
    """Return days since `since`, between the first audited day and `before`, that no
    night audited.
    """
    audited = {one for one in days if one < before}
    if not audited:
        return []
    day = date.fromisoformat(max(min(audited), since))
    found = []
    while day.isoformat() < before:
        if day.isoformat() not in audited:
            found.append(day.isoformat())
        day += timedelta(days=1)
    return found


def carried_since(day: str, retention_s: float) -> str:
    """Return the first day whose open messages are still looked for."""
    kept = max(timedelta(days=CARRIED_DAYS), timedelta(seconds=retention_s))
    return (date.fromisoformat(day) - timedelta(days=-(-kept // timedelta(days=1)))).isoformat()
