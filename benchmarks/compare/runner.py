"""Runs a row: warms up, then every way in turn, round after round, and says what came of it."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.compare import ways
from benchmarks.compare.arena import Arena, Load, Round
from benchmarks.compare.floor import Floor
from benchmarks.compare.machine import described
from benchmarks.compare.row import Bar, Case, Measure, Row, judged
from benchmarks.compare.study import Say
from isthmus.brokers.installation import RabbitMQInstallation
from wan_proxy import LAN

WARM_UP_S = 2.0


def figure(one: Round, measure: Measure) -> float:
    """Return one measure of a round."""
    if measure is Measure.MB_S:
        return one.rate * one.message_bytes / 1e6
    return float(getattr(one, measure.value))


async def run(
    row: Row, installation: RabbitMQInstallation, rounds: int, say: Say, *, quick: bool = False
) -> dict[str, Any]:
    """The row's document. Raises what its brokers, nodes and load raise."""
    cases = (row.quick or ()) if quick else row.cases
    over_proxy = any(case.condition is not None for case in row.cases)
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as folder:
        made = ways.make(row.ways, Path(folder))
        arena = Arena(installation, Path(folder), row.layout(), made, LAN if over_proxy else None)
        say(f"{row.name}: {row.title}: starting {len(arena.layout.sites)} brokers")
        async with arena:
            floor = Floor(arena) if row.floor else None
            if floor is not None:
                await floor.set_up()
            for way in made:
                await arena.round(way, _warm_up(cases[0].load, row.warm_up))
            told = {case.name: await _case(arena, case, rounds, floor, say) for case in cases}
    version = ".".join(map(str, installation.release[:2]))
    products = {way.name: way.servers.version for way in made if way.servers is not None}
    return {
        "row": row.name,
        "title": row.title,
        "rabbitmq": version,
        "quick": quick,
        **described(installation, products),
        "cases": told,
        "bars": [
            held(bar, told, version)
            for bar in row.bars
            if bar.case in told and (bar.against_case or bar.case) in told
        ],
    }


def _warm_up(load: Load, most: int) -> Load:
    count = min(load.count, most)
    if load.rate:
        count = min(count, int(load.rate * WARM_UP_S))
    return replace(load, count=max(count, len(load.keys)))


async def _case(
    arena: Arena, case: Case, rounds: int, floor: Floor | None, say: Say
) -> dict[str, Any]:
    if case.condition is not None:
        await arena.condition(case.condition)
    by_way: dict[str, list[Round]] = {}
    floors: list[float] = []
    for number in range(rounds):
        for way in arena.ways:
            one = await arena.round(way, case.load)
            by_way.setdefault(way.name, []).append(one)
            say(f"  {case.name}, round {number + 1}: {_line(one)}")
        if floor is not None:
            floors.append(await floor.broker_us(case.load))
            say(f"  {case.name}, round {number + 1}: floor: brokers {floors[-1]:.0f} us")
    told: dict[str, Any] = {
        "load": asdict(case.load),
        "condition": None if case.condition is None else case.condition.to_json(),
        "ways": {name: summary(ones) for name, ones in by_way.items()},
    }
    if floors:
        told["floor_broker_us"] = statistics.median(floors)
    return told


def _line(one: Round) -> str:
    parts = [
        f"{one.way}: {one.rate:,.0f}/s",
        f"p50 {one.p50_ms:.1f} ms",
        f"p99 {one.p99_ms:.1f} ms",
        f"brokers {one.broker_us:.0f} us",
        f"relays {one.relay_us:.1f} us",
        f"load {one.load_us:.1f} us",
    ]
    if one.missing or one.duplicates:
        parts.append(f"{one.missing} MISSING, {one.duplicates} twice")
    return ", ".join(parts)


def summary(ones: Sequence[Round]) -> dict[str, Any]:
    """Median, least and most of each measure, and all rounds."""
    told: dict[str, Any] = {}
    for measure in Measure:
        figures = [figure(one, measure) for one in ones]
        told[measure.value] = {
            "median": statistics.median(figures),
            "least": min(figures),
            "most": max(figures),
        }
    told["missing"] = sum(one.missing for one in ones)
    told["duplicates"] = sum(one.duplicates for one in ones)
    told["out_of_order"] = sum(one.out_of_order for one in ones)
    told["rounds"] = [asdict(one) for one in ones]
    return told


def held(bar: Bar, told: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Return the figures reached of a bar, in the cases of `told`."""

    def median(case: str, way: str) -> float:
        return float(told[case]["ways"][way][bar.measure.value]["median"])

    reached = median(bar.case, bar.way)
    if bar.against:
        reached /= median(bar.against_case or bar.case, bar.against)
    return judged(bar.name, reached, bar.wanted.get(version), at_least=bar.at_least)
