"""A backlog after an outage: the line is away while it is published, and comes back.

The backlog is on an exchange of the lane `bulk`. Before it, the same load goes over a whole line,
which gives the live rate. While it drains, fresh messages are published at a fixed rate on an
exchange of the first lane; they begin when the first message of the backlog has come, so that how
long the link takes to come back (a column of its own) is not in their latencies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.compare.arena import QUIET_S, Arena, Load
from benchmarks.compare.brokers import QUEUE
from benchmarks.compare.isthmus_way import IsthmusMesh, IsthmusWay
from benchmarks.compare.layout import one_hop
from benchmarks.compare.load_process import LoadProcess
from benchmarks.compare.study import Findings, Setting, Study, StudyBar
from benchmarks.compare.until import until
from benchmarks.compare.usage import memory_mb
from relay.bulk_amqp import connect
from wan_proxy import LAN

SENDER, RECEIVER = one_hop().sites
SIZE = 256
FRESH_A_S = 100.0
FRESH_QUEUE = f"{QUEUE}.fresh"
_BACKLOG, _FRESH = "history", "orders"
_LIVE_PART, _LEAST_LIVE, _MOST_LIVE = 10, 20_000, 200_000
_RECONNECTS_WITHIN_S = 120.0
_PACKED_WITHIN_S = 600.0


@dataclass(slots=True)
class _Drained:
    """Result of a phase."""

    rate: float
    fresh: dict[str, Any]
    missing: int
    duplicates: int


class _Phases:
    """Phases of one amount, in one arena."""

    def __init__(self, arena: Arena, mesh: IsthmusMesh, fresh: LoadProcess) -> None:
        self._arena, self._mesh, self._fresh = arena, mesh, fresh
        self._backlog = Load(0, SIZE)

    async def declare(self) -> None:
        """The fresh ones' queue, which an application of theirs would have for itself."""
        connection = await connect(self._arena.brokers.uri(RECEIVER))
        channel = await connection.channel()
        arguments = {"x-queue-type": "quorum"}
        await channel.declare_queue(FRESH_QUEUE, durable=True, arguments=arguments)
        await channel.bind_queue(FRESH_QUEUE, f"{_FRESH}.in", "#")
        await connection.close()
        await self._arena.consume_too(FRESH_QUEUE, [RECEIVER])

    async def live(self, count: int) -> _Drained:
        """Published and delivered at once, beside the fresh ones."""
        run = await self._arena.begin()
        await self._publish_fresh(run)
        published = await self._publish(run, count)
        return await self._drained(count, published["began"])

    async def outage(self, count: int) -> str:
        """Publish it all while the line is away. Returns the run."""
        assert self._arena.proxy is not None
        before = await self._packed()
        for line in await self._arena.proxy.control.lines():
            await self._arena.proxy.control.cut(line)
        run = await self._arena.begin()
        await self._publish(run, count)

        async def logged() -> bool:
            return await self._packed() >= before + count

        await until(logged, "the backlog is in the sender's log", _PACKED_WITHIN_S)
        return run

    async def back(self, run: str, count: int) -> tuple[float, _Drained]:
        """The line is whole again: seconds until the first came, and the rest from then on."""
        arena = self._arena
        assert arena.proxy is not None
        healed = await arena.sinks.do("now")
        for line in await arena.proxy.control.lines():
            await arena.proxy.control.heal(line)
        await arena.sinks.do("wait", counts={RECEIVER: 1}, quiet_s=_RECONNECTS_WITHIN_S)
        first = await arena.sinks.do("now")
        await self._publish_fresh(run)
        return first - healed, await self._drained(count, first)

    async def _packed(self) -> int:
        told = await self._mesh.status()
        return int(told["sites"][SENDER]["packed"])

    async def _publish(self, run: str, count: int) -> dict[str, Any]:
        asked = self._arena.publish_request([SENDER], _BACKLOG, self._backlog, run)
        published: dict[str, Any] = await self._arena.sources.do("publish", count=count, **asked)
        return published

    async def _publish_fresh(self, run: str) -> None:
        asked = self._arena.publish_request([SENDER], _FRESH, Load(0, SIZE, rate=FRESH_A_S), run)
        await self._fresh.do("publish_on", **asked)

    async def _drained(self, count: int, since: float) -> _Drained:
        sinks = self._arena.sinks
        told = await sinks.do("wait", counts={RECEIVER: count}, quiet_s=QUIET_S)
        fresh_sent = (await self._fresh.do("publish_off"))["confirmed"]
        fresh_sink = f"{RECEIVER} {FRESH_QUEUE}"
        last = await sinks.do("wait", counts={fresh_sink: fresh_sent}, quiet_s=QUIET_S)
        came = told[RECEIVER]["delivered"]
        figures = [one for site in last.values() for one in site["origins"].values()]
        return _Drained(
            rate=came / (told[RECEIVER]["last"] - since),
            fresh=last[fresh_sink]["origins"]["0"],
            missing=count + fresh_sent - sum(one["delivered"] for one in figures),
            duplicates=sum(one["duplicates"] for one in figures),
        )


async def _measure(setting: Setting) -> Findings:
    found = Findings()
    for count in setting.amounts:
        folder = setting.folder / str(count)
        folder.mkdir()
        exchanges = [
            {"name": _BACKLOG, "mode": "split", "lane": "bulk"},
            {"name": _FRESH, "mode": "split", "lane": "urgent"},
        ]
        mesh = IsthmusMesh(folder, exchanges, lanes=["urgent", "normal", "bulk"])
        ways = [IsthmusWay(mesh, _BACKLOG)]
        fresh = LoadProcess()
        async with Arena(setting.installation, folder, one_hop(), ways, LAN) as arena:
            await fresh.start()
            try:
                await _one(setting, found, count, _Phases(arena, mesh, fresh), ways[0])
            finally:
                await fresh.stop()
    return found


async def _one(
    setting: Setting, found: Findings, count: int, phases: _Phases, way: IsthmusWay
) -> None:
    """Measure one amount into `found`; bars are about the last amount."""
    await phases.declare()
    lives = min(_MOST_LIVE, max(_LEAST_LIVE, count // _LIVE_PART))
    await phases.live(_LEAST_LIVE)  # warms up
    live = await phases.live(lives)
    setting.say(f"  live: {live.rate:,.0f}/s, fresh p99 {live.fresh['p99_ms']:.0f} ms")
    run = await phases.outage(count)
    setting.say(f"  {count:,} are in the sender's log")
    back_s, drained = await phases.back(run, count)
    peak_mb = max(memory_mb(pid, "VmHWM") for pid in way.relay_pids())
    found.table[f"{count:,}"] = {
        "live": live.rate,
        "drain": drained.rate,
        "back_s": back_s,
        "live_p99_ms": live.fresh["p99_ms"],
        "p50_ms": drained.fresh["p50_ms"],
        "p99_ms": drained.fresh["p99_ms"],
        "longest_ms": drained.fresh["longest_ms"],
        "node_mb": peak_mb,
        "missing": live.missing + drained.missing,
        "duplicates": live.duplicates + drained.duplicates,
    }
    found.reached |= {
        "drain rate over live rate": drained.rate / live.rate,
        "the biggest node's MB at most": peak_mb,
        "p99 ms of fresh messages": drained.fresh["p99_ms"],
    }
    setting.say(
        f"  drained: {drained.rate:,.0f}/s, fresh p99 {drained.fresh['p99_ms']:.0f} ms, back after "
        f"{back_s:.1f} s, node {peak_mb:.0f} MB, {drained.missing} missing"
    )


STUDY = Study(
    "backlog",
    f"a backlog in lane `bulk` after an outage, {SIZE} B each, beside fresh messages at "
    f"{FRESH_A_S:g}/s in the first lane",
    "messages",
    (2_000_000,),
    _measure,
    {
        "live": "live messages/s",
        "drain": "drained messages/s",
        "back_s": "first after s",
        "live_p99_ms": "fresh p99 ms, live",
        "p50_ms": "fresh p50 ms, draining",
        "p99_ms": "fresh p99 ms, draining",
        "longest_ms": "longest ms",
        "node_mb": "node MB at most",
        "missing": "lost",
        "duplicates": "twice",
    },
    ("drain", "p99_ms", "node_mb"),
    (
        StudyBar("drain rate over live rate", 1.0, at_least=True),
        StudyBar("the biggest node's MB at most", 150.0),
        StudyBar("p99 ms of fresh messages", 2000.0),
    ),
    quick=(50_000,),
)
