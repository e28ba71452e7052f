"""All rows that compare Isthmus with federation, shovel and other products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from benchmarks.compare.arena import Load
from benchmarks.compare.layout import Layout, branches, complete, one_hop, ring
from benchmarks.compare.row import Bar, Case, Measure, Row, both
from wan_proxy import ISDN_64K, LAN, LineCondition

KIB = 1024
_ROUND_TRIP_100 = LineCondition.both_ways(delay_ms=50)
_ROUND_TRIP_200 = LineCondition.both_ways(delay_ms=100)
_LATE_200 = LineCondition.both_ways(delay_ms=100, late_fraction=0.01)
_LINE_20M = LineCondition.both_ways(delay_ms=10, rate_bits_per_s=20e6)


def _sizes() -> tuple[Case, ...]:
    counts = {"64 B": 60_000, "1 KiB": 40_000, "16 KiB": 10_000, "256 KiB": 800, "4 MiB": 50}
    sizes = {
        "64 B": 64,
        "1 KiB": KIB,
        "16 KiB": 16 * KIB,
        "256 KiB": 256 * KIB,
        "4 MiB": 4096 * KIB,
    }
    return tuple(Case(name, Load(count, sizes[name])) for name, count in counts.items())


def _quick(case: Case, part: int) -> Case:
    return replace(case, load=replace(case.load, count=case.load.count // part))


_HOP = Case("1 KiB", Load(60_000))
_MESH = Case("1 KiB", Load(15_000))
_ROUND_TRIPS = (
    Case("0 ms", Load(40_000), LAN),
    Case("100 ms", Load(40_000), _ROUND_TRIP_100),
    Case("200 ms", Load(40_000), _ROUND_TRIP_200),
    Case("200 ms, 1 % late", Load(20_000), _LATE_200),
)
_AT_RATES = tuple(
    Case(f"{rate}/s", Load(rate * seconds, rate=rate))
    for rate, seconds in ((100, 10), (1000, 10), (4000, 10))
)
_SHOP = Case("JSON of a shop", Load(25_000, body="shop"), _LINE_20M)
_EIGHTHS = Case(
    "JSON of a shop",
    Load(32_000, body="shop", keys=tuple(f"store.branch{number}" for number in range(8))),
    _LINE_20M,
)
_NOISE = Case("noise", Load(15_000, body="noise"), _LINE_20M)


def _mesh_of_4(
    name: str,
    title: str,
    layout: Callable[[int], Layout],
    over_federation: float,
    *,
    quick: bool = False,
) -> Row:
    """Everybody publishes for everybody."""
    return Row(
        name,
        f"4 sites, {title}",
        lambda: layout(4),
        ("isthmus", "federation", "isthmus-transparent"),
        (_MESH,),
        (
            Bar(_MESH.name, Measure.RATE, both(over_federation), "federation"),
            Bar(_MESH.name, Measure.RATE, both(0.65, 0.55), "isthmus", way="isthmus-transparent"),
            Bar(_MESH.name, Measure.RELAY_US, both(11), at_least=False),
        ),
        (_quick(_MESH, 6),) if quick else None,
        floor=True,
    )


_COMPILED = 40_000
"""Messages after which Kafka's virtual machines have compiled most of what they run."""


def _beside_others(name: str, title: str, cases: Sequence[Case]) -> Row:
    """Make a row with other products, which Isthmus is to equal in its last case."""
    others = ("nats", "mirror-maker")
    return Row(
        f"others-{name}",
        f"other products: one hop over {title}",
        one_hop,
        ("isthmus", "federation", *others),
        cases,
        tuple(Bar(cases[-1].name, Measure.RATE, both(1.0), other) for other in others),
        warm_up=_COMPILED,
    )


ROWS = {
    row.name: row
    for row in (
        Row(
            "hop",
            "2 sites, 1 KiB, one hop, quorum destination",
            one_hop,
            ("isthmus", "federation", "shovel"),
            (_HOP,),
            (
                Bar("1 KiB", Measure.RATE, both(1.1, 0.85), "federation"),
                Bar("1 KiB", Measure.RATE, both(1.0), "shovel"),
                Bar("1 KiB", Measure.RELAY_US, both(19, 24), at_least=False),
            ),
            (_quick(_HOP, 4),),
            floor=True,
        ),
        _mesh_of_4("complete4", "complete graph, quorum", complete, 1.6, quick=True),
        _mesh_of_4("ring4", "one-way ring, quorum; federation with max-hops 3", ring, 1.9),
        Row(
            "sizes",
            "one hop, from 64 B to 4 MiB",
            one_hop,
            ("isthmus", "federation"),
            _sizes(),
            tuple(Bar(case.name, Measure.MB_S, both(1.0), "federation") for case in _sizes()),
        ),
        Row(
            "round-trip",
            "one hop over a round trip of 100 and 200 ms, and with 1 % of segments late by one",
            one_hop,
            ("isthmus", "federation", "federation-tuned"),
            _ROUND_TRIPS,
            (
                Bar("200 ms", Measure.RATE, both(2.5), "federation"),
                Bar("200 ms", Measure.RATE, both(1.1), "federation-tuned"),
                Bar("200 ms", Measure.RATE, both(0.95), "isthmus", against_case="0 ms"),
                Bar("200 ms, 1 % late", Measure.RATE, both(1.0), "federation-tuned"),
            ),
            (_quick(_ROUND_TRIPS[2], 5),),
        ),
        Row(
            "line20-json",
            "one hop over 20 Mbit/s, round trip 20 ms: JSON of a shop",
            one_hop,
            ("isthmus", "federation"),
            (_SHOP,),
            (Bar(_SHOP.name, Measure.RATE, both(5.0), "federation"),),
            (_quick(_SHOP, 5),),
        ),
        Row(
            "line20-noise",
            "one hop over 20 Mbit/s, round trip 20 ms: incompressible",
            one_hop,
            ("isthmus", "federation"),
            (_NOISE,),
            (Bar(_NOISE.name, Measure.RATE, both(1.0), "federation"),),
        ),
        _beside_others("round-trip", "a round trip of 0, 100 and 200 ms", _ROUND_TRIPS[:3]),
        _beside_others("line20-json", "20 Mbit/s, round trip 20 ms: JSON of a shop", (_SHOP,)),
        _beside_others("line20-noise", "20 Mbit/s, round trip 20 ms: incompressible", (_NOISE,)),
        Row(
            "uplink8",
            "one site's uplink of 20 Mbit/s, 8 branches that each want an eighth: JSON of a shop",
            lambda: branches(8),
            ("isthmus", "federation"),
            (_EIGHTHS,),
            (Bar(_EIGHTHS.name, Measure.RATE, both(5.0), "federation"),),
        ),
        Row(
            "branch64k",
            "a branch's line of 64 kbit/s: 5 messages/s of 2 KiB JSON",
            one_hop,
            ("isthmus", "federation"),
            (Case("5/s", Load(125, 2 * KIB, "shop", rate=5), ISDN_64K),),
            (Bar("5/s", Measure.P99, both(1000), at_least=False),),
        ),
        Row(
            "latency",
            "one hop at 100, 1000 and 4000 messages/s",
            one_hop,
            ("isthmus", "federation"),
            _AT_RATES,
            (
                Bar("1000/s", Measure.P50, both(2.5), "federation", at_least=False),
                Bar("1000/s", Measure.P99, both(2.0), "federation", at_least=False),
                Bar("4000/s", Measure.P50, both(1.5), "federation", at_least=False),
                Bar("4000/s", Measure.P99, both(1.0), "federation", at_least=False),
            ),
            (_quick(_AT_RATES[1], 2),),
        ),
    )
}
