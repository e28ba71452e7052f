"""Stream sourced over a leaf node: the destination's server is a leaf of the origin's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.compare.brokers import Brokers
from benchmarks.compare.downloads import NATS_SERVER, download, version
from benchmarks.compare.layout import Layout
from benchmarks.compare.nats import config
from benchmarks.compare.nats.config import NatsSite
from benchmarks.compare.nats.connection import NatsConnection
from benchmarks.compare.servers import ServerProcess
from benchmarks.compare.until import until
from benchmarks.compare.way import Lines
from isthmus.brokers.ports import free_ports
from wan_proxy import LineCondition

_SLACK_MS = 10.0
"""Part of a measured round trip that is not the line's."""


class NatsServers:
    """One server a site."""

    version = version("nats")

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.sites: dict[str, NatsSite] = {}
        self._processes: dict[str, ServerProcess] = {}

    async def start(self, site: str, remotes: Sequence[int]) -> None:
        """Start a server that is a leaf of those behind these ports, and wait until it accepts."""
        place = self.sites[site]
        place.folder.mkdir(parents=True)
        file = place.folder / "nats.conf"
        file.write_text(config.server_config(place, remotes))
        server = ServerProcess(f"NATS at {site}", place.folder / "nats.log")
        self._processes[site] = server
        await server.start([str(NATS_SERVER), "--config", str(file)])

        async def accepts() -> bool:
            server.check()
            try:
                await (await NatsConnection.open(self.uri(site))).close()
            except OSError:
                return False
            return True

        await until(accepts, f"NATS at {site} accepts connections")

    async def plan(self, way: str, site: str, dialler: str, lines: Lines) -> None:
        """Reserve the ports of a site's server, which the other site's reaches over a line."""
        client, leaf, monitor = free_ports(3)
        line = await lines.port_of(way, dialler, site, target=leaf)
        folder = self._folder / "nats" / site
        self.sites[site] = NatsSite(site, folder, client, leaf, line, monitor)

    def uri(self, site: str) -> str:
        return f"nats://127.0.0.1:{self.sites[site].client_port}"

    def pids(self) -> Sequence[int]:
        return [process.pid for process in self._processes.values()]

    async def request(self, site: str, subject: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return JetStream's answer at a site. Raises JetStreamError."""
        connection = await NatsConnection.open(self.uri(site))
        try:
            return await connection.request(f"$JS.API.{subject}", body)
        finally:
            await connection.close()

    async def probe(self, origin: str) -> None:
        """Publish a message that no measurement counts."""
        connection = await NatsConnection.open(self.uri(origin))
        try:
            await connection.request(config.subject_of(b"probe").decode(), {})
        finally:
            await connection.close()

    async def length(self, site: str) -> int:
        """Return the number of messages in a site's stream."""
        info = await self.request(site, f"STREAM.INFO.{config.STREAM}", {})
        return int(info["state"]["messages"])

    async def leaf_round_trips_ms(self, site: str) -> list[float]:
        """Return the round trips of a site's leaf connections, as its server last measured them."""
        port = self.sites[site].monitor_port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /leafz HTTP/1.0\r\n\r\n")
        answer = await reader.read()
        writer.close()
        leafs = json.loads(answer.partition(b"\r\n\r\n")[2]).get("leafs") or []
        return [config.milliseconds(leaf["rtt"]) for leaf in leafs]

    async def stop(self) -> None:
        for process in self._processes.values():
            await process.stop()


class NatsWay:
    """JetStream at its defaults, from one origin: one replica, files, no sync before a confirm."""

    name = "nats"
    publishes_to = arrives_at = config.STREAM

    def __init__(self, folder: Path) -> None:
        self.servers = NatsServers(folder)
        self._lines: Lines | None = None
        self._connected_over: LineCondition | None = None

    async def set_up(self, brokers: Brokers, layout: Layout, lines: Lines) -> None:
        await download("nats")
        self._lines = lines
        (origin,) = layout.origins
        for site in layout.sites:
            dialler = next(one for one in layout.sites if one != site)
            await self.servers.plan(self.name, site, dialler, lines)
        stream = f"STREAM.CREATE.{config.STREAM}"
        await self.servers.start(origin, [])
        await self.servers.request(origin, stream, config.origin_stream())
        for site in layout.destinations:
            await self.servers.start(site, [self.servers.sites[origin].line_port])
            await self.servers.request(site, stream, config.sourced_stream(origin))
            consumer = f"CONSUMER.DURABLE.CREATE.{config.STREAM}.{config.CONSUMER}"
            await self.servers.request(site, consumer, config.pull_consumer())

    async def ready(self, brokers: Brokers, layout: Layout) -> None:
        """Wait until both ends of each leaf know the line's round trip, and a message arrives.

        Leafs choose their compression by the round trip, and measure it when they connect, then
        every two minutes: over another line they connect anew.
        """
        assert self._lines is not None
        if self._lines.condition != self._connected_over:
            await self._lines.reset(self.name)
            # Not asked again: under load they measure what waits before the line, too.
            await until(lambda: self._knows_line(layout), "NATS' leafs are connected")
            self._connected_over = self._lines.condition
        (origin,) = layout.origins
        await self.servers.probe(origin)
        await until(lambda: self._has_copied(origin, layout), "NATS' streams are sourced")

    async def _knows_line(self, layout: Layout) -> bool:
        assert self._lines is not None
        wanted_ms = self._lines.round_trip_ms
        for site in layout.sites:
            measured = await self.servers.leaf_round_trips_ms(site)
            if not measured or any(abs(one - wanted_ms) > _SLACK_MS for one in measured):
                return False
        return True

    async def _has_copied(self, origin: str, layout: Layout) -> bool:
        published = await self.servers.length(origin)
        lengths = [await self.servers.length(site) for site in layout.destinations]
        return all(length == published for length in lengths)

    def relay_pids(self) -> Sequence[int]:
        return ()

    async def close(self) -> None:
        await self.servers.stop()
