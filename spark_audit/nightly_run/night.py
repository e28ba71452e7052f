"""One audited day as later nights know it. Pure: what it left open, and who speaks for which day.

A night judges its own day, and looks again at what earlier days left open. So the newest night that
judged a day speaks for it: mostly that of the day before, and one that was audited again since.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from spark_audit.judge.positions import SeenIncarnation

CARRIED_DAYS = 7
"""So many days, or the outage window where that is longer, a message is looked for again."""


@dataclass(frozen=True, slots=True)
class OpenDay:
    """A day of which not all is known. `sites`: by name, those whose ledgers lacked rows then;
    none where only an audit of that day tells more (its tables are damaged, say).
    """

    day: str
    why: str
    sites: tuple[str, ...] = ()
    is_short: tuple[str, ...] = ()
    """Of these sites, those whose rows ended before the day did."""

    def as_json(self) -> dict[str, Any]:
        return {
            "day": self.day,
            "why": self.why,
            "sites": list(self.sites),
            "is_short": list(self.is_short),
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> OpenDay:
        return cls(said["day"], said["why"], tuple(said["sites"]), tuple(said["is_short"]))


@dataclass(frozen=True, slots=True)
class Night:
    """What its row in the table `nights` says. `open`: rows in `pending`."""

    day: str
    ran_ms: int
    verdict: str
    findings: int
    open: int
    open_days: tuple[OpenDay, ...] = ()
    incarnations: tuple[SeenIncarnation, ...] = ()
    """Their order outlasts the files."""

    def kept(self) -> str:
        """What only later nights read."""
        return json.dumps(
            {
                "open_days": [one.as_json() for one in self.open_days],
                "incarnations": self.incarnations,
            }
        )

    @classmethod
    def of(cls, day: str, ran_ms: int, verdict: str, findings: int, left: int, kept: str) -> Night:
        """Raises ValueError, KeyError, TypeError where `kept` is none."""
        said = json.loads(kept)
        return cls(
            day,
            ran_ms,
            verdict,
            findings,
            left,
            tuple(OpenDay.from_json(one) for one in said["open_days"]),
            tuple(
                SeenIncarnation(str(origin), str(incarnation), str(state), int(number), int(ms))
                for origin, incarnation, state, number, ms in said["incarnations"]
            ),
        )


def speakers(nights: Iterable[Night], before: str) -> list[tuple[Night, str]]:
    """The nights that speak for days before `before`, each with the day after which it does:
    for those after that, up to its own.
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
    """Days of which not all is known, by those who speak for them."""
    return [
        one for night, after in spoken for one in night.open_days if after < one.day <= night.day
    ]


def skipped(days: Iterable[str], before: str, since: str) -> list[str]:
    """Days between audited ones and `before` that no night has audited, from `since` on."""
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
    """The first day of which messages are still looked for."""
    kept = max(timedelta(days=CARRIED_DAYS), timedelta(seconds=retention_s))
    return (date.fromisoformat(day) - timedelta(days=-(-kept // timedelta(days=1)))).isoformat()
