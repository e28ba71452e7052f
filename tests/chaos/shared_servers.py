"""A ZooKeeper and a Cassandra of one node each, which the nodes of one site share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from isthmus.cluster_parts.cassandra_nodes import CassandraNodes
from isthmus.cluster_parts.zookeeper_nodes import ZookeeperNodes
from tests.chaos.schedule import EXCHANGE, SHARED_SITE

NODES = (f"{SHARED_SITE}-a", f"{SHARED_SITE}-b")


class SharedServers:
    """Both servers, while they run."""

    def __init__(self, zookeeper: ZookeeperNodes, cassandra: CassandraNodes) -> None:
        self._zookeeper, self._cassandra = zookeeper, cassandra
        (self._address,) = cassandra.addresses

    @classmethod
    @asynccontextmanager
    async def started(cls, folder: Path) -> AsyncIterator[SharedServers]:
        zookeeper = ZookeeperNodes(folder / "zookeeper", 1)
        cassandra = CassandraNodes(folder / "cassandra", 1)
        async with AsyncExitStack() as running:
            await asyncio.gather(*map(running.enter_async_context, (zookeeper, cassandra)))
            yield cls(zookeeper, cassandra)

    @property
    def keys(self) -> dict[str, Any]:
        """Keys of the site in the mesh file."""
        hosts = [f"{self._address}:{self._cassandra.port}"]
        servers = {
            "zookeeper": self._zookeeper.hosts,
            "cassandra": {"hosts": hosts, "replication": 1},
        }
        # Both nodes have a slot, and that with the load goes from one to the other.
        slots = {"slots": 2, "place": {EXCHANGE: 0}}
        return {"nodes": list(NODES), "cluster": servers, **slots}

    @property
    def zookeeper_pid(self) -> int:
        return self._zookeeper.pid(0)

    @property
    def cassandra_pid(self) -> int:
        return self._cassandra.pid(self._address)

    async def start_cassandra(self) -> None:
        """Start the killed Cassandra again, and wait until it takes clients."""
        await self._cassandra.start_node(self._address)
