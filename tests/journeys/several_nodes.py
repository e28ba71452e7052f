"""A site of two nodes in a journey, and the servers that these share."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from isthmus import processes
from isthmus.cluster_parts.cassandra_nodes import CassandraNodes
from isthmus.cluster_parts.zookeeper_nodes import ZookeeperNodes
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.load import Load
from tests.waiting import until

SITE = "tokyo"
NODES = ["tokyo-a", "tokyo-b"]
PER_SECOND = 250.0
"""Of each of two streams at each site: the two neighbours publish a thousand a second."""


class SiteServers:
    """An ensemble of ZooKeeper, and as many nodes of Cassandra."""

    def __init__(self, zookeeper: ZookeeperNodes, cassandra: CassandraNodes) -> None:
        self.zookeeper = [zookeeper.pid(number) for number in range(len(zookeeper.hosts))]
        self._cassandra = cassandra
        self.keys: dict[str, Any] = {
            "zookeeper": zookeeper.hosts,
            "cassandra": {
                "hosts": [f"{address}:{cassandra.port}" for address in cassandra.addresses],
                "replication": len(cassandra.addresses),
            },
        }
        """The `cluster` of the site."""

    @property
    def cassandra(self) -> list[int]:
        """Process IDs of Cassandra's nodes."""
        return [self._cassandra.pid(address) for address in self._cassandra.addresses]

    async def kill_cassandra(self, number: int) -> None:
        """Kill a node of Cassandra, and wait until it is gone."""
        gone = processes.mark(self.cassandra[number])
        assert gone is not None
        gone.send(signal.SIGKILL)
        assert await processes.gone([gone], 10)

    async def start_cassandra(self, number: int) -> None:
        """Start a node of Cassandra again, with what it has on disk."""
        await self._cassandra.start_node(self._cassandra.addresses[number])

    @classmethod
    @asynccontextmanager
    async def started(cls, folder: Path, count: int = 3) -> AsyncIterator[SiteServers]:
        async with AsyncExitStack() as servers:
            yield cls(
                *await asyncio.gather(
                    servers.enter_async_context(ZookeeperNodes(folder / "zookeeper", count)),
                    servers.enter_async_context(CassandraNodes(folder / "cassandra", count)),
                )
            )


class TwoNodes:
    """A hub whose site in the middle has two nodes, with load at every site."""

    def __init__(self, mesh: LiveMesh, traffic: Load, servers: SiteServers) -> None:
        self.mesh = mesh
        self.traffic = traffic
        self.servers = servers

    async def running(self) -> tuple[str, str]:
        """Wait until all run; return the running node and the one that stands by."""
        await self.mesh.running()
        runs = await self.mesh.node_that_runs(SITE)
        (other,) = set(NODES) - {runs}
        await self.reaches(other, "standby")
        await self.traffic.more(500)
        return runs, other

    async def nodes(self) -> dict[str, Any]:
        """What `isthmus status` says of the site's nodes."""
        nodes: dict[str, Any] = (await self.mesh.status())["sites"][SITE].get("nodes", {})
        return nodes

    async def reaches(self, node: str, state: str) -> None:
        """Wait until a node's state is this one."""
        await self.until_nodes(
            lambda nodes: node in nodes and nodes[node]["state"] == state, f"{node} is {state}"
        )

    async def until_nodes(self, condition: Callable[[dict[str, Any]], bool], what: str) -> None:
        """Wait until what is said of the nodes meets the condition."""
        found: dict[str, Any] = {}

        async def is_met() -> bool:
            nonlocal found
            found = await self.nodes()
            return condition(found)

        await until(is_met, lambda: f"{what}: {found}\n{self.mesh.logs()}", 90, every_s=0.1)

    @property
    def arrived(self) -> int:
        """Number of messages that have come to the site from others."""
        return sum(
            message.origin.partition("/")[0] != SITE
            for (site, _), sink in self.traffic.sinks.items()
            if site == SITE
            for message in sink.arrived
        )

    async def more_arrives(self, count: int) -> float:
        """Wait until so many more messages have come to the site from others; return the longest
        time (s) in which none came.
        """
        clock = asyncio.get_running_loop().time
        last, since, longest = self.arrived, clock(), 0.0
        goal = last + count

        def are_there() -> bool:
            nonlocal last, since, longest
            now, arrived = clock(), self.arrived
            longest = max(longest, now - since)
            if arrived > last:
                last, since = arrived, now
            return arrived >= goal

        await until(are_there, self.mesh.logs, 90, every_s=0.1)
        return longest

    def signal(self, node: str, number: int) -> None:
        self.mesh.kill(f"{SITE}/{node}", number)

    def start(self, node: str, **environment: str) -> None:
        self.mesh.environment = environment
        self.mesh.start_node(SITE, node)
        self.mesh.environment = {}

    def stop(self, node: str) -> None:
        assert self.mesh.stop(f"{SITE}/{node}") == 0

    def log(self, node: str) -> str:
        return (self.mesh.folder / f"{SITE}-{node}.log").read_text()

    async def is_refused(self, node: str, times: int) -> None:
        """Wait until a node has been told so often that the slot is another's."""
        await until(
            lambda: self.log(node).count("the slot is no longer this node's") == times,
            self.mesh.logs,
            60,
        )

    async def check(self, most_flags: int) -> None:
        """Nothing is lost, nothing comes twice unflagged, order is kept."""
        await self.traffic.end()
        await self.traffic.arrived(within_s=240)
        self.traffic.check(lambda site, origin: most_flags if SITE in (site, origin) else 0)
