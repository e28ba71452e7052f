"""Write the report as one HTML file that opens offline, without scripts or requests.

Names and identities come from whoever could publish or write a ledger: the template escapes every
value, and invisible characters (controls, writing directions) become visible escapes.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from federation import durable_file
from spark_audit.compare.latency import Latency, Way
from spark_audit.judge.verdicts import OPEN
from spark_audit.report.advice import ADVICE, Advice, Commands, advice, by_gravity
from spark_audit.report.report import AuditReport, PairMinute
from spark_audit.report.tables import counts_table

MOST_SITES = 40
"""Most sites of a matrix; with more, only notable pairs are listed."""
MOST_PAIRS = 200
FIRST_FINDINGS = 5
"""Findings of a kind shown before the rest is folded."""
SLOWEST = 10
_HOUR_MS = 3_600_000
_HOURS_APART = 48
"""Hours of a period above which days are shown."""


def page(report: AuditReport, commands: Commands) -> str:
    measured = report.latencies
    pairs = [one for one in measured if one.way is Way.DELIVERY]
    links = [one for one in measured if one.way is Way.LINK]
    slowest = sorted(links, key=lambda one: (-one.p99_ms, one.source, one.target))[:SLOWEST]
    scale = _Scale.of(measured)
    text: str = (
        _template()
        .get_template("report.html.j2")
        .render(
            report=report,
            tone={"proven": "good", "findings": "bad", "not proven": "open"}[report.verdict.value],
            facts=_facts(report),
            kinds=_kinds(report, commands),
            reasons=report.why_not_proven,
            accepted=[str(one) for one in report.accepted_gaps],
            matrix=_matrix(report),
            notable=_notable(report),
            hours=_hours(report.counts),
            totals=_notes(report.totals, ()),
            pairs=[_bar(report, one, scale) for one in pairs[:MOST_PAIRS]],
            more_pairs=max(len(pairs) - MOST_PAIRS, 0),
            slowest=[_bar(report, one, scale) for one in slowest],
            stages=[
                _bar(report, one, scale)
                for way in (Way.PACKING, Way.SETTLING)
                for one in _slowest_of(measured, way)
            ],
            waiting=report.as_json()["waiting"],
            carried=report.carried,
            carried_days=_carried_days(report),
            commands=commands,
        )
    )
    return text


@cache
def _template() -> Environment:
    found = Environment(
        loader=PackageLoader("spark_audit.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_seen,
    )
    found.filters["number"] = lambda value: f"{value:,}"
    found.filters["with_code"] = _with_code
    return found


def _seen(value: Any) -> Any:
    """Escape unprintable characters of a text."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in value
    )


def _with_code(text: str) -> Markup:
    """Turn text between backticks into code."""
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(text.split("`"))
    )


# -- contents of the page ----------------------------------------------------------------------


def _facts(report: AuditReport) -> list[tuple[str, str]]:
    totals = report.totals
    return [
        ("deliveries", f"{totals['delivered'] + totals['late']:,}"),
        ("findings", f"{sum(report.findings.values()):,}"),
        ("on their way", f"{totals['pending']:,}"),
        ("sites", f"{len(set(report.names.values())):,}"),
        *(
            (f"{what} by receipts", f"{report.receipts[what]:,}")
            for what in ("published", "consumed")
            if report.receipts is not None
        ),
    ]


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    count: int
    advice: Advice
    first: list[dict[str, Any]]
    others: list[dict[str, Any]]
    left_out: int
    commands: list[str]


def _kinds(report: AuditReport, commands: Commands) -> list[_Kind]:
    shown = report.as_json()["shown"]
    found = []
    for name, count in by_gravity(report.findings):
        meaning = advice(name)
        rows = [one for one in shown if one["kind"] == name]
        to_type = [commands.repair()] if meaning.repairs else []
        if identity := next((one["identity"] for one in rows if one["identity"]), None):
            to_type.append(commands.trace(identity))
        first, others = rows[:FIRST_FINDINGS], rows[FIRST_FINDINGS:]
        found.append(_Kind(name, count, meaning, first, others, count - len(rows), to_type))
    return found


def tone_of(verdict: str) -> str:
    """Return the colour class of a verdict, whose words always stand beside it."""
    if verdict == "delivered":
        return "good"
    if verdict in ADVICE:
        return "bad"
    return "open" if verdict in OPEN else "known"


def _notes(counts: Counter[str], left_out: Sequence[str] = ("delivered",)) -> list[dict[str, Any]]:
    """Describe counts in words, the worst first."""
    tones = ["bad", "open", "known", "good"]
    notes = [
        {"verdict": verdict, "count": count, "tone": tone_of(verdict)}
        for verdict, count in counts.items()
        if count and verdict not in left_out
    ]
    return sorted(notes, key=lambda one: (tones.index(str(one["tone"])), str(one["verdict"])))


def _cell(counts: Counter[str] | None) -> dict[str, Any] | None:
    if counts is None:
        return None
    notes = _notes(counts)
    return {
        "delivered": counts["delivered"] + counts["late"],
        "notes": notes,
        "tone": notes[0]["tone"] if notes else "good",
    }


def _matrix(report: AuditReport) -> dict[str, Any] | None:
    """Return a matrix of origins (rows) and destinations (columns), or None with too many sites."""
    pairs = report.pairs
    sites = sorted({*report.names.values(), *(site for pair in pairs for site in pair)})
    if len(sites) > MOST_SITES:
        return None
    return {
        "sites": sites,
        "rows": [
            {"origin": origin, "cells": [_cell(pairs.get((origin, to))) for to in sites]}
            for origin in sites
        ],
    }


def _notable(report: AuditReport) -> list[dict[str, Any]]:
    """Return pairs with more than plain deliveries, the worst first."""
    tones = ["bad", "open", "known", "good"]
    cells = [
        {"origin": origin, "destination": destination, **cell}
        for (origin, destination), counts in report.pairs.items()
        if (cell := _cell(counts)) and cell["notes"]
    ]
    return sorted(cells, key=lambda one: tones.index(one["tone"]))[:MOST_PAIRS]


def _carried_days(report: AuditReport) -> list[dict[str, Any]]:
    if report.carried is None:
        return []
    return [
        {"day": day, "count": counts.total(), "notes": _notes(counts, ())}
        for day, counts in sorted(report.carried.days.items())
    ]


def _hours(counts: Iterable[PairMinute]) -> list[dict[str, Any]]:
    """Count by hour of publishing, or by day, with empty steps between."""
    minutes: dict[int, Counter[str]] = {}
    for one in counts:
        minutes.setdefault(one.minute_ms, Counter())[one.verdict] += one.messages
    if not minutes:
        return []
    span = max(minutes) - min(minutes)
    step = _HOUR_MS if span < _HOURS_APART * _HOUR_MS else 24 * _HOUR_MS
    first, last = min(minutes) // step, max(minutes) // step
    found = [Counter[str]() for _ in range(first, last + 1)]
    for minute, counted in minutes.items():
        found[minute // step - first].update(counted)
    most = max(counted.total() for counted in found)
    return [
        {
            "time": _hour(number * step, step),
            "total": counted.total(),
            "delivered": counted["delivered"] + counted["late"],
            "notes": _notes(counted),
            "parts": [
                {"tone": tone, "percent": round(100 * part / most, 2)}
                for tone in ("good", "known", "open", "bad")
                if (part := sum(n for name, n in counted.items() if tone_of(name) == tone))
            ],
        }
        for number, counted in enumerate(found, first)
    ]


def _hour(ms: int, step: int) -> str:
    begin = datetime.fromtimestamp(ms / 1000, UTC)
    return f"{begin:%d %b %H:%M}" if step == _HOUR_MS else f"{begin:%d %b %Y}"


# -- how long it took --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Scale:
    """Logarithmic scale of times: 0 at its left end, 100 at its right."""

    least: float
    most: float

    @classmethod
    def of(cls, measured: Iterable[Latency]) -> _Scale:
        times = [max(ms, 1) for one in measured for ms in (one.p50_ms, one.most_ms)]
        if not times:
            return cls(0, 1)
        least, most = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
        return cls(least, max(most, least + 1))

    def at(self, ms: int) -> float:
        place = (math.log10(max(ms, 1)) - self.least) / (self.most - self.least)
        return round(100 * min(max(place, 0), 1), 2)


def _bar(report: AuditReport, one: Latency, scale: _Scale) -> dict[str, Any]:
    left, right = scale.at(one.p50_ms), scale.at(one.p99_ms)
    return {
        "way": one.way.value,
        "source": report.name(one.source),
        "target": report.name(one.target),
        "messages": one.messages,
        "p50": duration(one.p50_ms),
        "p90": duration(one.p90_ms),
        "p99": duration(one.p99_ms),
        "most": duration(one.most_ms),
        "left": left,
        "width": round(max(right - left, 1), 2),
        "end": scale.at(one.most_ms),
        "clocks_differ": one.p50_ms < 0,
    }


def _slowest_of(measured: Iterable[Latency], way: Way) -> list[Latency]:
    return sorted((one for one in measured if one.way is way), key=lambda one: -one.p99_ms)[
        :SLOWEST
    ]


def duration(ms: int) -> str:
    """Format in the shortest unit: 12 ms, 3.4 s, 5 min 10 s, 7 h 2 min."""
    if ms < 0:
        return f"−{duration(-ms)}"
    if ms < 1000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.3g} s" if ms < 59_950 else "60 s"
    seconds = round(ms / 1000)
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"


def write_report(report: AuditReport, folder: Path, commands: Commands | None = None) -> None:
    """Write report.html, report.json, and the tables findings.parquet and counts.parquet.
    `commands`: commands recommended by the page.
    """
    folder.mkdir(parents=True, exist_ok=True)
    report.table.coalesce(1).write.mode("overwrite").parquet(str(folder / "findings.parquet"))
    table = counts_table(report.table.sparkSession, report.counts)
    table.coalesce(1).write.mode("overwrite").parquet(str(folder / "counts.parquet"))
    commands = commands or Commands(out=str(folder))
    durable_file.write(folder / "report.json", json.dumps(report.as_json(), indent=1) + "\n")
    durable_file.write(folder / "report.html", page(report, commands))
