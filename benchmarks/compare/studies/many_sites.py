"""Cost of a delivery to the relays in meshes of any size, at the same small rate of deliveries.

Messages come in bursts, since what a batch has in it decides its cost: at one even rate the same
deliveries would be fuller batches in a mesh of two than in one of sixteen. What the nodes take
while nothing is published is measured before, and taken off; it is a column of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from benchmarks.compare.arena import Arena, Load
from benchmarks.compare.isthmus_way import IsthmusMesh, IsthmusWay
from benchmarks.compare.layout import Layout, complete, one_hop, ring
from benchmarks.compare.study import Findings, Setting, Study, StudyBar
from benchmarks.compare.usage import tree_cpu_s

BURST = 32
DELIVERIES_A_S = 3200.0
"""Deliveries a second at all sites: as many as two cores carry beside sixteen brokers and nodes."""
IDLE_S, LOADED_S, WARM_UP_S = 30.0, 40.0, 5.0
FEWEST_IN_A_RING = 4


def _layouts(sites: int) -> Sequence[tuple[str, Layout]]:
    if sites == 1:
        return [("one hop", one_hop())]
    rings = [(f"ring {sites}", ring(sites))] if sites >= FEWEST_IN_A_RING else []
    return [(f"complete {sites}", complete(sites)), *rings]


def load_of(layout: Layout, seconds: float) -> Load:
    """Return the load that gives the same rate of deliveries at other sites in any layout."""
    rate = DELIVERIES_A_S / layout.remote_deliveries
    bursts = max(1, round(rate * seconds / BURST))
    return Load(bursts * BURST, rate=rate, burst=BURST)


async def _measure(setting: Setting) -> Findings:
    found = Findings()
    for sites in setting.amounts:
        for name, layout in _layouts(sites):
            folder = setting.folder / name
            folder.mkdir()
            found.table[name] = await _one(setting, name, layout, IsthmusMesh(folder, _ORDERS))
    for shape in ("complete", "ring"):
        names = [name for name in found.table if name.startswith(shape)]
        if len(names) > 1:
            fewest, most = (found.table[names[which]]["relay_us"] for which in (0, -1))
            found.reached[_bar(shape)] = most / fewest
    return found


_ORDERS = [{"name": "orders", "mode": "split"}]


async def _one(setting: Setting, name: str, layout: Layout, mesh: IsthmusMesh) -> dict[str, float]:
    """A row of the table."""
    setting.say(f"  {name}: starting {len(layout.sites)} brokers")
    way = IsthmusWay(mesh)
    async with Arena(setting.installation, mesh.file.parent, layout, [way]) as arena:
        await arena.round(way, load_of(layout, WARM_UP_S))
        idle_s = -tree_cpu_s(way.relay_pids())
        await asyncio.sleep(IDLE_S)
        idle_s += tree_cpu_s(way.relay_pids())
        before = await _batches(mesh)
        one = await arena.round(way, load_of(layout, LOADED_S))
        after = await _batches(mesh)
    packed, batches = (now - was for now, was in zip(after, before, strict=True))
    idle_us = idle_s / IDLE_S * one.seconds / one.deliveries * 1e6
    told = {
        "rate": one.rate,
        "relay_us": one.relay_us - idle_us,
        "broker_us": one.broker_us,
        "idle_ms": idle_s / IDLE_S / len(layout.sites) * 1e3,
        "in_batch": packed / max(1, batches),
        "relay_mb": one.relay_mb,
        "p99_ms": one.p99_ms,
        "missing": one.missing,
        "duplicates": one.duplicates,
    }
    setting.say(
        f"  {name}: {told['rate']:,.0f}/s, relays {told['relay_us']:.1f} us a delivery and "
        f"{told['idle_ms']:.1f} ms/s each at rest, {told['in_batch']:.0f} in a batch, "
        f"{one.missing} missing"
    )
    return told


async def _batches(mesh: IsthmusMesh) -> tuple[int, int]:
    """Messages packed and batches so far, of all sites."""
    sites = (await mesh.status())["sites"].values()
    return sum(site["packed"] for site in sites), sum(site["batches"] for site in sites)


def _bar(shape: str) -> str:
    return f"{shape}: relays' CPU a delivery, the most sites over the fewest"


STUDY = Study(
    "sites",
    f"complete graphs and rings of some sites, {DELIVERIES_A_S:,.0f} deliveries/s in all, bursts "
    f"of {BURST}; 1: one hop",
    "sites",
    (1, 2, 4, 8, 16),
    _measure,
    {
        "rate": "deliveries/s",
        "relay_us": "relays' CPU us above rest",
        "broker_us": "brokers' CPU us",
        "idle_ms": "a node at rest, ms/s",
        "in_batch": "messages a batch",
        "relay_mb": "relay MB",
        "p99_ms": "p99 ms",
        "missing": "lost",
        "duplicates": "twice",
    },
    ("relay_us", "idle_ms"),
    (StudyBar(_bar("complete"), 1.1), StudyBar(_bar("ring"), 1.1)),
)
