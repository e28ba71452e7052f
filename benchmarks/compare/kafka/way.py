"""MirrorMaker 2 beside the destination's server: consumes over the line, produces at home."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path

from benchmarks.compare.brokers import Brokers
from benchmarks.compare.downloads import KAFKA_JARS, PACKAGES, download, version
from benchmarks.compare.kafka import config
from benchmarks.compare.kafka.config import TOPIC, KafkaSite
from benchmarks.compare.layout import Layout
from benchmarks.compare.servers import ServerProcess
from benchmarks.compare.way import Lines
from isthmus.brokers.ports import free_ports


class KafkaServers:
    """One server a site."""

    version = version("kafka")

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.sites: dict[str, KafkaSite] = {}
        self._processes: dict[str, ServerProcess] = {}

    async def start(self, way: str, site: str, dialler: str, lines: Lines) -> None:
        """Start a server that the other site reaches over a line."""
        port, controller, far = free_ports(3)
        line = await lines.port_of(way, dialler, site, target=far)
        folder = self._folder / "kafka" / site
        folder.mkdir(parents=True)
        place = self.sites[site] = KafkaSite(site, folder, port, controller, far, line)
        properties = folder / "server.properties"
        properties.write_text(config.server_properties(place))
        log = folder / "server.log"
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        formatter = ServerProcess(f"Kafka's formatting at {site}", log)
        await formatter.start(config.format_command(KAFKA_JARS, properties, cluster))
        await formatter.finish()
        server = self._processes[site] = ServerProcess(f"Kafka at {site}", log)
        await server.start(config.server_command(KAFKA_JARS, properties))

    def uri(self, site: str) -> str:
        return f"kafka://127.0.0.1:{self.sites[site].port}"

    def pids(self) -> Sequence[int]:
        return [process.pid for process in self._processes.values()]

    async def topic(self, do: str, site: str, topic: str) -> None:
        """Create a topic (`do`: create), or wait until somebody has (wait). Raises TimeoutError."""
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.compare.kafka.topics"),
            *(do, f"127.0.0.1:{self.sites[site].port}", topic),
            env={**os.environ, "PYTHONPATH": str(PACKAGES)},
        )
        if await program.wait():
            for process in self._processes.values():
                process.check()
            raise TimeoutError(f"Kafka at {site} has no topic {topic!r}")

    async def stop(self) -> None:
        for process in self._processes.values():
            await process.stop()


class MirrorMakerWay:
    """MirrorMaker 2 at its defaults, for one origin: one partition, at least once."""

    name = "mirror-maker"
    publishes_to = TOPIC

    def __init__(self, folder: Path) -> None:
        self.arrives_at = ""
        self.servers = KafkaServers(folder)
        self._folder = folder
        self._makers: list[ServerProcess] = []

    async def set_up(self, brokers: Brokers, layout: Layout, lines: Lines) -> None:
        await download("kafka")
        (origin,) = layout.origins
        self.arrives_at = config.copied_topic(origin)
        for site in layout.sites:
            dialler = next(one for one in layout.sites if one != site)
            await self.servers.start(self.name, site, dialler, lines)
        # MirrorMaker looks for new topics only every ten minutes.
        await self.servers.topic("create", origin, TOPIC)
        for site in layout.destinations:
            folder = self.servers.sites[site].folder
            properties = folder / "mirror-maker.properties"
            sites = self.servers.sites
            properties.write_text(config.mirror_maker_properties(sites[origin], sites[site]))
            maker = ServerProcess(f"MirrorMaker at {site}", folder / "mirror-maker.log")
            self._makers.append(maker)
            await maker.start(config.mirror_maker_command(KAFKA_JARS, properties))

    async def ready(self, brokers: Brokers, layout: Layout) -> None:
        """Wait until MirrorMaker has made the topic that it copies to."""
        for site in layout.destinations:
            await self.servers.topic("wait", site, self.arrives_at)

    def relay_pids(self) -> Sequence[int]:
        return [maker.pid for maker in self._makers]

    async def close(self) -> None:
        for maker in self._makers:
            await maker.stop()
        await self.servers.stop()
