"""Cost of a multicast group on the lines, beside a complete graph of links and beside NORM.

`publisher` and `all` are bytes over the payload: what the publisher's site has sent over its line,
and what all sites have, links, acknowledgements and the heads of Ethernet frames included. Messages
are noise, each a batch of its own, at a rate below the group's. Of more sites than NODES_AT_MOST
two cores carry no nodes: there the members of the group run alone, without links, and batches that
need a link are told as `by links`. Needs root, g++, libnorm-dev and nftables:
`scripts/install-packages.sh g++ libnorm-dev nftables`.
"""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from benchmarks.compare.downloads import DownloadError
from benchmarks.compare.study import Findings, Setting, Study, StudyBar
from benchmarks.multicast import norm
from benchmarks.multicast.members import AloneMembers
from benchmarks.multicast.site_load import Carried, SiteLoad, Spread
from benchmarks.multicast.site_mesh import RATE, Shape, running_mesh
from benchmarks.multicast.site_network import SiteNetwork, site_network

LOSSES = (0.0, 0.01, 0.05)
MOST_SITES = 32
"""Sites of which the bytes are judged."""
NODES_AT_MOST = 8
"""Sites that have nodes; of more there are only the members of the group."""
QUICKEST_SITES = 4
"""Sites of which the delays are judged: of more the deliveries alone take two cores."""
ROUNDS = 1
"""Rounds of each case whose bytes are judged: all of them take a quarter of an hour."""
FAST_ROUNDS = 3
"""Rounds of each case whose delays are judged, which what else a machine does moves."""
NORM_PER_SECOND = 10.0
"""Objects that NORM sends a second, whose programs two cores carry at any number of sites."""
_WARM_UP = 20
_WANTED = {0.0: 1.15, 0.01: 1.3, 0.05: 1.5}
_SIZE, _COUNT, _FEWER = 64 * 1024, 100, 60
_FAST = Spread(1000, 8 * 1024, 100.0)


def spread_of(sites: int) -> Spread:
    """Return the load of a mesh: fewer a second where each comes to more sites."""
    return Spread(_COUNT if sites <= NODES_AT_MOST else _FEWER, _SIZE, 40.0 / sites)


def case_name(kind: str, sites: int, loss: float, per_second: float = 0.0) -> str:
    """Return the name of a row of the table; `per_second` only of small messages at a high rate."""
    told = f"{kind} {sites}, {loss * 100:g} % lost"
    return f"{told}, {per_second:g}/s" if per_second else told


def _sites_of(case: str) -> int:
    return int(case.split()[1].rstrip(","))


def row_of(rounds: Sequence[Carried], payload: int) -> dict[str, float]:
    """Return the medians of some rounds as a row of the table."""
    return {
        "publisher": statistics.median(one.publisher_bytes for one in rounds) / payload,
        "all": statistics.median(one.all_bytes for one in rounds) / payload,
        "p50_ms": statistics.median(one.p50_ms for one in rounds),
        "p99_ms": statistics.median(one.p99_ms for one in rounds),
        "missing": sum(one.missing for one in rounds) / len(rounds),
    }


def reached_by(table: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return what a table says of each bar, as far as the table goes."""
    reached: dict[str, float] = {}

    def put(what: str, figure: str, case: str, against: str = "") -> None:
        if case in table and (not against or against in table):
            by = table[against][figure] if against else 1.0
            reached[what] = table[case][figure] / by

    for loss in LOSSES:
        alone, beside = (case_name(kind, MOST_SITES, loss) for kind in ("members", "NORM"))
        put(_bar(loss, PUBLISHER), "publisher", alone)
        put(_bar(loss, OVER_NORM), "publisher", alone, beside)
        nodes = case_name("group", NODES_AT_MOST, loss)
        put(_bar(loss, ALL, NODES_AT_MOST), "all", nodes)
    star, members = (
        table.get(case_name(kind, sites, 0.0))
        for kind, sites in (("star", NODES_AT_MOST), ("members", MOST_SITES))
    )
    if star and members:
        links = (MOST_SITES - 1) / (NODES_AT_MOST - 1)
        reached[COMPLETE_BYTES] = star["publisher"] * links / members["publisher"]
    for what, figure, loss in ((_P50, "p50_ms", 0.0), (_P99, "p99_ms", 0.05)):
        group, beside = (
            case_name(kind, QUICKEST_SITES, loss, _FAST.per_second)
            for kind in ("group", "complete")
        )
        put(what, figure, group, beside)
    return reached


PUBLISHER = "the publisher's bytes over the payload"
OVER_NORM = "the publisher's bytes over NORM's"
ALL = "all sites' bytes over the payload"


def _bar(loss: float, what: str, sites: int = MOST_SITES) -> str:
    return f"{sites} sites, {loss * 100:g} % lost: {what}"


COMPLETE_BYTES = (
    f"{MOST_SITES} sites: a complete graph's publisher's bytes, by the links of {NODES_AT_MOST}, "
    "over the group's"
)
_P50 = f"{_FAST.per_second:g}/s, none lost: p50 over complete's"
_P99 = f"{_FAST.per_second:g}/s, 5 % lost: p99 over complete's"


def _needed() -> None:
    if os.geteuid() != 0:
        raise DownloadError("the sites' network namespaces are for root")
    if shutil.which("nft") is None:
        raise DownloadError("packets get lost by nftables: scripts/install-packages.sh nftables")


async def _measure(setting: Setting) -> Findings:
    _needed()
    program = norm.build(setting.folder)
    found = Findings()
    for sites in setting.amounts:
        with site_network(sites) as network:
            await _norm(setting, found, network, norm.NormGroup(network, program))
            if sites > NODES_AT_MOST:
                await _members(setting, found, network)
            else:
                await _shape(setting, found, network, Shape("group", sites), LOSSES)
                await _shape(setting, found, network, Shape("star", sites), (0.0,))
    if QUICKEST_SITES in setting.amounts:
        with site_network(QUICKEST_SITES) as network:
            for kind in ("group", "complete"):
                shape = Shape(kind, QUICKEST_SITES)
                await _shape(setting, found, network, shape, (0.0, 0.05), _FAST)
    found.table = dict(sorted(found.table.items(), key=lambda row: _sites_of(row[0])))
    found.reached |= reached_by(found.table)
    return found


async def _norm(
    setting: Setting, found: Findings, network: SiteNetwork, group: norm.NormGroup
) -> None:
    spread = spread_of(network.count)
    load = norm.NormLoad(spread.count, spread.size, NORM_PER_SECOND, RATE)
    for loss in LOSSES:
        network.lose(loss)
        publisher, everyone = await group.send(load)
        name = case_name("NORM", network.count, loss)
        found.table[name] = {
            "publisher": publisher / spread.payload,
            "all": everyone / spread.payload,
        }
        _say(setting, found, name)
    network.lose(0.0)


async def _members(setting: Setting, found: Findings, network: SiteNetwork) -> None:
    spread = spread_of(network.count)
    for loss in LOSSES:
        network.lose(loss)
        carried = await AloneMembers(network, RATE).carry(spread)
        name = case_name("members", network.count, loss)
        row = row_of([carried], spread.payload)
        found.table[name] = row | {"by_links": row.pop("missing")}
        _say(setting, found, name)
    network.lose(0.0)


async def _shape(
    setting: Setting,
    found: Findings,
    network: SiteNetwork,
    shape: Shape,
    losses: Sequence[float],
    fast: Spread | None = None,
) -> None:
    """Put rows of one mesh into the table."""
    spread = fast or spread_of(shape.sites)
    async with _loaded(setting, network, shape, spread) as load:
        for loss in losses:
            network.lose(loss)
            count = FAST_ROUNDS if fast else ROUNDS
            rounds = [await load.carry(spread) for _ in range(count)]
            name = case_name(shape.kind, shape.sites, loss, fast.per_second if fast else 0.0)
            found.table[name] = row_of(rounds, spread.payload)
            _say(setting, found, name)
        network.lose(0.0)


@asynccontextmanager
async def _loaded(
    setting: Setting, network: SiteNetwork, shape: Shape, spread: Spread
) -> AsyncIterator[SiteLoad]:
    folder = setting.folder / f"{shape.kind}-{shape.sites}-{spread.size}"
    async with running_mesh(setting.installation, folder, network, shape) as mesh:
        load = SiteLoad(mesh, network)
        try:
            await load.open()
            await load.carry(Spread(_WARM_UP, spread.size, spread.per_second))
            yield load
        finally:
            await load.close()


def _say(setting: Setting, found: Findings, name: str) -> None:
    figures = ", ".join(f"{key} {figure:.3f}" for key, figure in found.table[name].items())
    setting.say(f"  {name}: {figures}")


STUDY = Study(
    "multicast",
    "a multicast group on the lines of some sites, 64 KiB of noise a batch (group: with nodes and "
    "links; members: without); beside it the links of a complete graph (star: those of the "
    "publisher), and NORM",
    "sites",
    (4, 8, 16, 32),
    _measure,
    {
        "publisher": "publisher's bytes over the payload",
        "all": "all sites' bytes over the payload",
        "p50_ms": "p50 ms",
        "p99_ms": "p99 ms",
        "missing": "lost",
        "by_links": "by links",
    },
    ("publisher", "all"),
    (
        *(
            bar
            for loss, wanted in _WANTED.items()
            for bar in (
                StudyBar(_bar(loss, PUBLISHER), wanted),
                StudyBar(_bar(loss, ALL, NODES_AT_MOST), 1.8),
                StudyBar(_bar(loss, OVER_NORM), 1.15),
            )
        ),
        StudyBar(COMPLETE_BYTES, 20.0, at_least=True),
        StudyBar(_P50, 2.0),
        StudyBar(_P99, 0.25),
    ),
)
