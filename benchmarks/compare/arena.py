"""Brokers, ways between them, and the load: what stands while a row is measured."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from benchmarks.compare.brokers import QUEUE, Brokers
from benchmarks.compare.layout import Layout
from benchmarks.compare.load_process import LoadProcess
from benchmarks.compare.servers import Servers
from benchmarks.compare.usage import memory_mb, tree_cpu_s
from benchmarks.compare.way import Lines, Way
from benchmarks.proxy_process.client import ProxyProcess
from isthmus.brokers.installation import RabbitMQInstallation
from isthmus.load.messages import RUN_BYTES
from relay.bulk_amqp import connect
from wan_proxy import LineCondition

QUIET_S = 60.0
"""Silence after which missing messages count as lost."""


@dataclass(frozen=True, slots=True)
class Load:
    """Load of one round at each origin. `rate` 0: as fast as possible.

    `keys`: of a publisher each, which share the count; one publisher a site unless told.
    """

    count: int
    size: int = 1024
    body: str = "half"
    rate: float = 0.0
    keys: tuple[str, ...] = ("bench.load",)
    burst: int = 1
    """Number of messages due at once, at a `rate`."""


@dataclass(frozen=True, slots=True)
class Round:
    """Result of one round of one way. CPU is in microseconds a delivery at another site."""

    way: str
    deliveries: int
    seconds: float
    missing: int
    duplicates: int
    out_of_order: int
    broker_us: float
    relay_us: float
    load_us: float
    """CPU of a message published or consumed anywhere."""
    broker_mb: float
    relay_mb: float
    """The biggest relay's, at its most so far."""
    p50_ms: float
    p99_ms: float
    message_bytes: int

    @property
    def rate(self) -> float:
        """Deliveries at other sites a second, until the last one."""
        return self.deliveries / self.seconds


def _sink(way: Way, site: str) -> str:
    """Return the name under which arrivals of a way at a site are counted."""
    return site if way.servers is None else f"{site} {way.name}"


class Arena:
    """Use as `async with`: all that is started ends with it."""

    def __init__(
        self,
        installation: RabbitMQInstallation,
        folder: Path,
        layout: Layout,
        ways: Sequence[Way],
        condition: LineCondition | None = None,
    ) -> None:
        self.layout = layout
        self.ways = ways
        self.brokers = Brokers(installation, folder, layout.sites)
        self.proxy = ProxyProcess() if condition is not None else None
        self._condition = condition
        self.sources, self.sinks = LoadProcess(), LoadProcess()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as unless_up:
            await unless_up.enter_async_context(self.brokers)
            if self.proxy is not None:
                await self.proxy.start()
                unless_up.push_async_callback(self.proxy.stop)
            control = self.proxy.control if self.proxy is not None else None
            self.lines = Lines(self.brokers, control, self._condition)
            for way in self.ways:
                unless_up.push_async_callback(way.close)
                await way.set_up(self.brokers, self.layout, self.lines)
            await self._declare()
            for way in self.ways:
                await way.ready(self.brokers, self.layout)
            for load in (self.sources, self.sinks):
                await load.start()
                unless_up.push_async_callback(load.stop)
            await self._consume()
            self._stack = unless_up.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _declare(self) -> None:
        """Declare the queue of all ways, which also gets the messages published at home."""
        for site in self.layout.destinations:
            connection = await connect(self.brokers.uri(site))
            channel = await connection.channel()
            await channel.declare_queue(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
            key = self.layout.wants.get(site, "#")
            for way in self._ways_of_brokers():
                at_home = {way.publishes_to} if site in self.layout.origins else set()
                for exchange in {way.arrives_at, *at_home}:
                    await channel.bind_queue(QUEUE, exchange, key)
            await connection.close()

    def _ways_of_brokers(self) -> Sequence[Way]:
        return [way for way in self.ways if way.servers is None]

    async def _consume(self) -> None:
        """Consume the queue of the brokers' ways, and what each other way has in its place."""
        uris = {site: self.brokers.uri(site) for site in self.layout.destinations}
        await self.sinks.do("consume", uris=uris, queue=QUEUE)
        for way in self.ways:
            if (servers := way.servers) is not None:
                names = {_sink(way, site): site for site in self.layout.destinations}
                uris = {name: servers.uri(site) for name, site in names.items()}
                await self.sinks.do("consume", uris=uris, queue=way.arrives_at)

    async def consume_too(self, queue: str, sites: Sequence[str]) -> None:
        """Count arrivals of another queue of these sites too, under the name `SITE QUEUE`."""
        uris = {f"{site} {queue}": self.brokers.uri(site) for site in sites}
        await self.sinks.do("consume", uris=uris, queue=queue)

    async def condition(self, condition: LineCondition) -> None:
        """Give all lines this condition, and wait until all ways run over them."""
        assert self.proxy is not None
        self.lines.condition = condition
        for line in await self.proxy.control.lines():
            await self.proxy.control.set(line, condition)
        for way in self.ways:
            await way.ready(self.brokers, self.layout)

    def brokers_cpu_s(self) -> float:
        """All that the brokers have used so far."""
        return tree_cpu_s(self.brokers.pids())

    async def send(
        self,
        sites: Sequence[str],
        exchange: str,
        load: Load,
        expected: Mapping[str, int],
        *,
        count: int | None = None,
        quiet_s: float = QUIET_S,
        servers: Servers | None = None,
    ) -> tuple[Any, Any]:
        """Publish at each of these sites, at the brokers or other servers, and wait until so many
        have come at others, or nothing more does: what sources and sinks say.
        """
        run = await self.begin()
        asked = self.publish_request(sites, exchange, load, run, servers)
        asked["count"] = (count or load.count) // len(load.keys)
        published = await self.sources.do("publish", **asked)
        return published, await self.sinks.do("wait", counts=dict(expected), quiet_s=quiet_s)

    async def begin(self) -> str:
        """The sinks forget what came. Returns what messages of the new run say."""
        run = os.urandom(RUN_BYTES).hex()
        await self.sinks.do("begin", run=run)
        return run

    def publish_request(
        self,
        sites: Sequence[str],
        exchange: str,
        load: Load,
        run: str,
        servers: Servers | None = None,
    ) -> dict[str, Any]:
        """Return the request to a load's process, but for the number of messages."""
        publishers = len(load.keys)
        uri = (servers or self.brokers).uri
        return {
            "origins": [
                (number * publishers + nth, uri(site))
                for number, site in enumerate(sites)
                for nth in range(publishers)
            ],
            "exchange": exchange,
            "run": run,
            "rate": load.rate / publishers,
            "burst": load.burst,
            "body": load.body,
            "size": load.size,
            "keys": load.keys,
        }

    def _cpu_s(self, way: Way) -> tuple[float, float, float]:
        return (
            tree_cpu_s((way.servers or self.brokers).pids()),
            tree_cpu_s(way.relay_pids()),
            tree_cpu_s([self.sources.pid, self.sinks.pid]),
        )

    async def round(self, way: Way, load: Load, *, quiet_s: float = QUIET_S) -> Round:
        """Publish at every origin, and wait until all has come or nothing more does."""
        before = self._cpu_s(way)
        sinks = {site: _sink(way, site) for site in self.layout.destinations}
        published, told = await self.send(
            self.layout.origins,
            way.publishes_to,
            load,
            {name: self._expected_at(site, load) for site, name in sinks.items()},
            quiet_s=quiet_s,
            servers=way.servers,
        )
        after = self._cpu_s(way)
        came = {site: told[name] for site, name in sinks.items()}
        return self._round(way, load, published, came, before, after)

    def _expected_at(self, site: str, load: Load) -> int:
        if site not in self.layout.wants:
            return load.count * len(self.layout.origins)
        wanted = load.keys.count(self.layout.wants[site])
        return load.count // len(load.keys) * wanted * len(self.layout.origins)

    def _round(
        self,
        way: Way,
        load: Load,
        published: Mapping[str, Any],
        told: Mapping[str, Mapping[str, Any]],
        before: tuple[float, float, float],
        after: tuple[float, float, float],
    ) -> Round:
        remote = []
        for site, came in told.items():
            for origin, figures in came["origins"].items():
                at = self.layout.origins[int(origin) // len(load.keys)]
                if at != site:
                    remote.append(figures)
        deliveries = sum(figures["delivered"] for figures in remote)
        expected = sum(self._expected_at(site, load) for site in told)
        delivered = sum(came["delivered"] for came in told.values())
        brokers_s, relays_s, load_s = (now - was for was, now in zip(before, after, strict=True))
        handled = max(1, published["confirmed"] + delivered)
        return Round(
            way=way.name,
            deliveries=deliveries,
            seconds=max(site["last"] for site in told.values()) - published["began"],
            missing=expected - delivered,
            duplicates=sum(figures["duplicates"] for figures in remote),
            out_of_order=sum(figures["out_of_order"] for figures in remote),
            broker_us=brokers_s / max(1, deliveries) * 1e6,
            relay_us=relays_s / max(1, deliveries) * 1e6,
            load_us=load_s / handled * 1e6,
            broker_mb=max(map(memory_mb, (way.servers or self.brokers).pids())),
            relay_mb=max((memory_mb(pid, "VmHWM") for pid in way.relay_pids()), default=0.0),
            p50_ms=max((figures["p50_ms"] for figures in remote), default=0.0),
            p99_ms=max((figures["p99_ms"] for figures in remote), default=0.0),
            message_bytes=published["bytes"],
        )
