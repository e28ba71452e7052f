"""Many minutes at 70 % of the live rate: does anything grow?

The live rate is the median of some rounds at full speed before. Figures are of each minute; bars
compare the median of the last third of them with that of the first third.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Mapping, Sequence

from benchmarks.compare.arena import QUIET_S, Arena, Load
from benchmarks.compare.isthmus_way import IsthmusMesh, IsthmusWay
from benchmarks.compare.layout import one_hop
from benchmarks.compare.study import Findings, Setting, Study, StudyBar
from benchmarks.compare.usage import memory_mb, open_files, tree_cpu_s

SENDER, RECEIVER = one_hop().sites
PART = 0.7
MINUTE_S = 60.0
BURST = 32
"""One at a time would cost the publisher, and its broker, several times what the live rate does."""
_LIVE = Load(60_000)
_WARM_UP = Load(3000)
_ROUNDS = 3

_FLAT = {
    "relay_mb": ("the biggest node's memory", 1.1),
    "relay_files": ("open files of the nodes", 1.1),
    "broker_files": ("open files of the brokers", 1.1),
    "p50_ms": ("p50", 1.25),
    "p99_ms": ("p99", 1.5),
}
"""Name in bars, and permitted growth, by column."""


def _bar(what: str) -> str:
    return f"{what}: the last third over the first"


def drift(table: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return, by bar, the median of the last third of the minutes over the first third's."""
    rows = list(table.values())
    third = max(1, len(rows) // 3)

    def median(column: str, of: Sequence[Mapping[str, float]]) -> float:
        return statistics.median(row[column] for row in of)

    return {
        _bar(what): median(column, rows[-third:]) / median(column, rows[:third])
        for column, (what, _) in _FLAT.items()
    }


async def _measure(setting: Setting) -> Findings:
    (minutes,) = setting.amounts
    found = Findings()
    mesh = IsthmusMesh(setting.folder, [{"name": "orders", "mode": "split"}])
    way = IsthmusWay(mesh)
    async with Arena(setting.installation, setting.folder, one_hop(), [way]) as arena:
        await arena.round(way, _WARM_UP)
        live = statistics.median([(await arena.round(way, _LIVE)).rate for _ in range(_ROUNDS)])
        rate = PART * live
        setting.say(f"  live {live:,.0f}/s; {minutes} minutes at {rate:,.0f}/s")
        run = await arena.begin()
        asked = arena.publish_request(
            [SENDER], way.publishes_to, Load(0, rate=rate, burst=BURST), run
        )
        await arena.sources.do("publish_on", **asked)
        began, used_s = time.monotonic(), tree_cpu_s(way.relay_pids())
        for minute in range(1, minutes + 1):
            await asyncio.sleep(began + minute * MINUTE_S - time.monotonic())
            came = (await arena.sinks.do("latencies"))[RECEIVER]
            now_s = tree_cpu_s(way.relay_pids())
            row = found.table[str(minute)] = {
                "rate": came["count"] / MINUTE_S,
                "p50_ms": came["p50_ms"],
                "p99_ms": came["p99_ms"],
                "relay_us": (now_s - used_s) / max(1, came["count"]) * 1e6,
                "relay_mb": max(map(memory_mb, way.relay_pids())),
                "broker_mb": max(map(memory_mb, arena.brokers.pids())),
                "relay_files": sum(map(open_files, way.relay_pids())),
                "broker_files": sum(map(open_files, arena.brokers.pids())),
            }
            used_s = now_s
            setting.say(
                f"  minute {minute}: {row['rate']:,.0f}/s, p50 {row['p50_ms']:.1f} ms, p99 "
                f"{row['p99_ms']:.1f} ms, node {row['relay_mb']:.0f} MB, files "
                f"{row['relay_files']:.0f} and {row['broker_files']:.0f}"
            )
        published = await arena.sources.do("publish_off")
        told = await arena.sinks.do(
            "wait", counts={RECEIVER: published["confirmed"]}, quiet_s=QUIET_S
        )
    found.reached = drift(found.table)
    origins = told[RECEIVER]["origins"].values()
    missing = published["confirmed"] - told[RECEIVER]["delivered"]
    found.reached[_LOST] = missing + sum(one["duplicates"] for one in origins)
    return found


_LOST = "lost or twice"
STUDY = Study(
    "long",
    f"some minutes at {PART:.0%} of the live rate, one hop, bursts of {BURST}",
    "minutes",
    (30,),
    _measure,
    {
        "rate": "messages/s",
        "p50_ms": "p50 ms",
        "p99_ms": "p99 ms",
        "relay_us": "relays' CPU us",
        "relay_mb": "biggest node MB",
        "broker_mb": "biggest broker MB",
        "relay_files": "nodes' files",
        "broker_files": "brokers' files",
    },
    ("p99_ms", "relay_mb", "relay_files"),
    (
        *(StudyBar(_bar(what), wanted) for what, wanted in _FLAT.values()),
        StudyBar(_LOST, 0.0),
    ),
)
