"""docs/performance.md, made of the committed results: what was reached, and where we lose. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.compare.row import Measure

VERSIONS = ("3.10", "4.0", "4.3")

TRIED = "tried"
"""Name of the note that belongs to no row."""

_HEAD = """\
# Performance

<!-- Made by `make bench-report` from benchmarks/results and benchmarks/notes: do not edit. -->

Isthmus beside RabbitMQ's own federation and shovel, on the same private brokers, with the same
queues, the same load (persistent messages, publisher confirms) and everything of ours at its
defaults: barrier, ledger, content hashes, intents. One way after the other, round after round, in
one run; what may be compared are the **ratios** within a row. Medians, with the least and the most
of the rounds. On one machine without a WAN the brokers take nearly all of the time, whoever relays:
the rows over slow lines are what a mesh is for.

    make bench                            # all rows, on RabbitMQ 3.10 (what Debian 12 has)
    make bench RABBITMQ=4.3               # the same on 4.3
    make bench ROW=ring4 ROUNDS=5         # one row; a run that was ended goes on where it was
    make bench ROW=others-line20-json     # NATS and MirrorMaker; fetches them with Go and Maven
    make bench ROW=multicast              # a group, and NORM: as root
    make bench QUICK=1                    # some rows, short, beside the committed ratios
    make bench-report                     # this page and its charts
    python -m benchmarks.compare --amount barrier=1e6,1e7 --amount long=5 barrier long
                                          # rows of Isthmus alone, with other amounts

Brokers run with two schedulers (`+S 2:2`). Bodies are half noise unless the row says otherwise.
*CPU* is user and system time in microseconds a delivery at another site: of all brokers
(publishing and consuming included), of all relays. *Floor*: the brokers' with nothing between the
sites: publish into an egress queue, consume it, publish into the destination queues, consume those.
Messages are published as fast as the broker confirms them, so that latencies of those rows say how
long the backlog was, and nothing else; the row *latency* publishes at fixed rates, and counts from
when a message was due. The rows *others* have other products too, each with servers of its own and
the fastest client that we know of; their notes say what each promises.
"""

_OURS = ("rabbitmq", "python")
"""Versions that every row has; others are of other products' ways."""

_MEASURES: Mapping[str, str] = {
    Measure.RATE: "messages/s",
    Measure.MB_S: "MB/s",
    Measure.P50: "p50 ms",
    Measure.P99: "p99 ms",
    Measure.BROKER_US: "brokers' CPU us",
    Measure.RELAY_US: "relays' CPU us",
    Measure.RELAY_MB: "relay MB",
}
_RATES = (Measure.RATE, Measure.BROKER_US, Measure.RELAY_US, Measure.RELAY_MB)
_SIZES = (Measure.MB_S, Measure.BROKER_US, Measure.RELAY_US, Measure.RELAY_MB)
_LATENCIES = (Measure.P50, Measure.P99, Measure.BROKER_US, Measure.RELAY_US)


def page(
    results: Mapping[str, Mapping[str, dict[str, Any]]],
    notes: Mapping[str, str],
    charts: Iterable[str] = (),
) -> str:
    """`results` by row and version; `notes` by row, and TRIED; `charts`: names of rows that have
    one.
    """
    drawn = set(charts)
    parts = [_HEAD, *_summary(results)]
    for row, by_version in results.items():
        parts += _row(row, by_version, notes.get(row, ""), row in drawn)
    if tried := notes.get(TRIED):
        parts.append(f"## What was tried\n\n{tried}")
    return "\n".join(parts).rstrip() + "\n"


def _summary(results: Mapping[str, Mapping[str, dict[str, Any]]]) -> Iterator[str]:
    """Every bar in one table."""
    yield "## What was to be reached\n"
    yield f"| row | what | wanted | {' | '.join(VERSIONS)} |"
    yield "|---|---|---|" + "---|" * len(VERSIONS)
    for row, by_version in results.items():
        bars: dict[str, dict[str, dict[str, Any]]] = {}
        for version, told in by_version.items():
            for bar in told["bars"]:
                bars.setdefault(bar["what"], {})[version] = bar
        for what, reached in bars.items():
            cells = [_reached(reached.get(version)) for version in VERSIONS]
            yield f"| [{row}](#{row}) | {what} | {_wanted(reached)} | {' | '.join(cells)} |"
    yield ""


def _wanted(bars: Mapping[str, dict[str, Any]]) -> str:
    told = [f"{bars[version]['wanted']:g}" for version in VERSIONS if version in bars]
    sign = "at least" if all(bar["at_least"] for bar in bars.values()) else "at most"
    return f"{sign} {' / '.join(dict.fromkeys(told))}"


def _reached(bar: dict[str, Any] | None) -> str:
    if bar is None:
        return "not run"
    figure = _figure(bar["reached"])
    return f"**{figure}**" if bar["ok"] else f"{figure} (not reached)"


def _row(
    row: str, by_version: Mapping[str, dict[str, Any]], note: str, has_chart: bool
) -> Iterator[str]:
    told = next(iter(by_version.values()))
    yield f"## {row}\n"
    yield f"{told['title'][0].upper()}{told['title'][1:]}.\n"
    if has_chart:
        yield f"![{row}](performance/{row}.svg)\n"
    for result in by_version.values():
        yield f"{_products(result['versions'])}, {_where(result)}:\n"
        yield from _table(result) if "table" in result else _cases(result)
    if note:
        yield note.strip() + "\n"


def _products(versions: Mapping[str, str]) -> str:
    others = [f"{way} {number}" for way, number in versions.items() if way not in _OURS]
    return ", ".join([f"RabbitMQ {versions['rabbitmq']}", *others])


def _where(result: Mapping[str, Any]) -> str:
    machine = result["machine"]
    where = (
        f"{machine['cores']} cores of {machine['processor']}, Python "
        f"{result['versions']['python']}, commit {result['commit']}, {result['at'][:10]}"
    )
    if "table" in result:
        return where
    load = [
        one["load_us"]
        for case in result["cases"].values()
        for told in case["ways"].values()
        for one in told["rounds"]
    ]
    return (
        f"{where}; the load itself took {statistics.median(load):.1f} us of CPU a message "
        "published or consumed"
    )


def measures_of(result: Mapping[str, Any]) -> Sequence[Measure]:
    """Return the measures in a row's table."""
    said = " ".join(bar["what"] for bar in result["bars"])
    if Measure.P99 in said:
        return _LATENCIES
    return _SIZES if Measure.MB_S in said else _RATES


def _table(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of a row of Isthmus alone."""
    columns = result["columns"]
    yield f"| case | {' | '.join(columns.values())} |"
    yield "|---|" + "---|" * len(columns)
    for case, figures in result["table"].items():
        cells = [_figure(figures[key]) if key in figures else "" for key in columns]
        yield f"| {case} | {' | '.join(cells)} |"
    yield ""


def _cases(result: Mapping[str, Any]) -> Iterator[str]:
    measures = measures_of(result)
    yield f"| case | way | {' | '.join(_MEASURES[m] for m in measures)} | lost, twice |"
    yield "|---|---|" + "---|" * (len(measures) + 1)
    for name, case in result["cases"].items():
        for way, told in case["ways"].items():
            cells = [_spread(told[measure]) for measure in measures]
            wrong = f"{told['missing']}, {told['duplicates']}"
            yield f"| {name} | {way} | {' | '.join(cells)} | {wrong} |"
        if "floor_broker_us" in case:
            cells = [
                _figure(case["floor_broker_us"]) if measure is Measure.BROKER_US else ""
                for measure in measures
            ]
            yield f"| {name} | _floor_ | {' | '.join(cells)} | |"
    yield ""


def _spread(told: Mapping[str, float]) -> str:
    if not told["most"]:
        return ""
    median, least, most = (_figure(told[which]) for which in ("median", "least", "most"))
    return median if least == most else f"{median} ({least} to {most})"


def _figure(value: float) -> str:
    """Three digits, or all before the point."""
    if not value or math.isnan(value):
        return f"{value:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"
