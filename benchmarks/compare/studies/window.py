"""The disk that an outage window takes: full speed for some minutes, beside what the plan says.

What a site's log, its node's state and its ledger grow by a second is taken to go on for the whole
retention; `isthmus plan` is asked for the rate that was reached. Bodies are noise: the plan takes
how well batches compress from the operator, and would have it from here. It says nothing of
ledgers, which are told apart.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from benchmarks.compare.arena import QUIET_S, Arena, Load
from benchmarks.compare.isthmus_way import IsthmusMesh, IsthmusWay
from benchmarks.compare.layout import one_hop
from benchmarks.compare.study import Findings, Setting, Study, StudyBar
from benchmarks.compare.usage import disk_bytes
from federation.brokers.provision import LOG_SEGMENT_BYTES
from federation.mesh import Mesh
from federation.mesh_file import load_mesh
from federation.planning.disk_need import PublishRates, disk_need

SENDER, RECEIVER = one_hop().sites
SIZE = 1024
HOURS = (1, 24)
REST_S = 90.0
"""Wait until the last minute's rows are in the ledger's files, and none in the state."""
_WARM_UP = Load(10_000, SIZE, "noise")
_GB = 1e9


@dataclass(frozen=True, slots=True)
class Grown:
    """Bytes of one site."""

    log: int
    state: int
    ledger: int

    def since(self, before: Grown) -> Grown:
        return Grown(self.log - before.log, self.state - before.state, self.ledger - before.ledger)


def compared(
    mesh: Mesh, hours: float, rate: float, grown: Mapping[str, Grown], seconds: float
) -> dict[str, dict[str, float]]:
    """Return, by site, the disk of a window of so many hours, extrapolated from the growth of so
    many seconds at the rate, beside the plan.
    """
    mesh = replace(mesh, outage_window_s=hours * 3600)
    need = disk_need(mesh, PublishRates(flows={("orders", SENDER): rate}), SIZE)
    table = {}
    for site, one in grown.items():
        times = mesh.retention_s / seconds
        # As much as the plan adds, and for the same reason: the log lets go of whole segments.
        log = one.log * times + 2 * LOG_SEGMENT_BYTES
        # Identities are remembered for one to two windows.
        state = 2 * one.state * times
        told = need[site]
        table[site] = {
            "log_gb": log / _GB,
            "planned_log_gb": told.log_bytes / _GB,
            "state_gb": state / _GB,
            "planned_state_gb": told.state_bytes / _GB,
            "of_log": log / told.log_bytes,
            "of_both": (log + state) / (told.log_bytes + told.state_bytes),
            "ledger_gb": one.ledger * times / _GB,
        }
    return table


async def _measure(setting: Setting) -> Findings:
    (minutes,) = setting.amounts
    mesh = IsthmusMesh(setting.folder, [{"name": "orders", "mode": "split"}])
    way = IsthmusWay(mesh)
    async with Arena(setting.installation, setting.folder, one_hop(), [way]) as arena:
        await arena.round(way, _WARM_UP)
        before = _sizes(arena, mesh)
        run = await arena.begin()
        asked = arena.publish_request([SENDER], way.publishes_to, Load(0, SIZE, "noise"), run)
        began = time.monotonic()
        await arena.sources.do("publish_on", **asked)
        await asyncio.sleep(minutes * 60)
        published = await arena.sources.do("publish_off")
        count = published["confirmed"]
        told = await arena.sinks.do("wait", counts={RECEIVER: count}, quiet_s=QUIET_S)
        seconds = told[RECEIVER]["last"] - began
        setting.say(f"  {count:,} messages in {seconds:.0f} s, {count / seconds:,.0f}/s")
        await asyncio.sleep(REST_S)
        after = _sizes(arena, mesh)
    grown = {site: after[site].since(before[site]) for site in after}
    found, rate = Findings(), count / seconds
    for hours in HOURS:
        for site, row in compared(load_mesh(mesh.file), hours, rate, grown, seconds).items():
            found.table[f"{site}, {hours} h"] = {"rate": rate, **row}
            setting.say(
                f"  {site}, {hours} h: log {row['log_gb']:,.1f} GB, {row['of_log']:.2f} of the "
                f"plan's; with the state {row['of_both']:.2f}; ledger {row['ledger_gb']:,.1f} GB"
            )
    for key, what in _OFF.items():
        found.reached[what] = max(abs(row[key] - 1) for row in found.table.values())
    return found


def _sizes(arena: Arena, mesh: IsthmusMesh) -> dict[str, Grown]:
    return {site: _of(arena, mesh, site) for site in (SENDER, RECEIVER)}


def _of(arena: Arena, mesh: IsthmusMesh, site: str) -> Grown:
    node = mesh.state / "sites" / site
    return Grown(
        log=disk_bytes(arena.brokers.by_site[site].spec.folder / "data" / "node" / "stream"),
        # Without the write-ahead logs, which are some megabytes however much went through them.
        state=disk_bytes(node / "state", ".sst"),
        ledger=disk_bytes(node / "ledger"),
    )


_OFF = {
    "of_log": "log: off the plan by",
    "of_both": "log and state: off the plan by",
}
STUDY = Study(
    "window",
    f"the outage window's disk at full speed, {SIZE} B of noise, extrapolated",
    "minutes",
    (5,),
    _measure,
    {
        "rate": "messages/s",
        "log_gb": "log GB",
        "planned_log_gb": "planned",
        "of_log": "part of it",
        "state_gb": "state GB",
        "planned_state_gb": "planned",
        "of_both": "log and state, part of both planned",
        "ledger_gb": "ledger GB",
    },
    ("of_log", "of_both"),
    tuple(StudyBar(what, 0.1) for what in _OFF.values()),
)
