"""Private Cassandra of several nodes on loopback, from the jars that `make cluster-parts` fetches.

Nodes have an address each (127.0.0.1, 127.0.0.2, ...) and the same two ports. Nodes start one after
the other, as a joining node needs a settled ring.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from isthmus.brokers.ports import free_ports
from isthmus.cluster_parts.cassandra_node import CassandraNode
from isthmus.cluster_parts.server_group import ServerGroup
from isthmus.cluster_parts.server_tls import ServerTls

START_WITHIN_S = 180.0
PATIENCE_S = 20.0
SUPERUSER = "cassandra", "cassandra"
"""User and password that a new Cassandra has."""


class CassandraNodes(ServerGroup):
    """Private Cassandra in `folder`. With `tls` it asks clients for certificates, and maybe for
    passwords: it has SUPERUSER then. `settings` are more of cassandra.yaml.
    """

    def __init__(
        self,
        folder: Path,
        count: int,
        tls: ServerTls | None = None,
        *,
        asks_password: bool = False,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.addresses = [f"127.0.0.{number}" for number in range(1, count + 1)]
        self.port, storage_port = free_ports(2)
        super().__init__(
            "Cassandra",
            {
                address: CassandraNode(
                    folder / address,
                    address,
                    self.port,
                    storage_port,
                    seed=self.addresses[0],
                    # By these all have equal parts of the ring.
                    token=-(2**63) + 2**64 * place // count,
                    tls=tls,
                    asks_password=asks_password,
                    settings=settings or {},
                )
                for place, address in enumerate(self.addresses)
            },
            start_within_s=START_WITHIN_S,
            patience_s=PATIENCE_S,
        )

    def pid(self, address: str) -> int:
        """Return the process ID of a node."""
        return self.pid_of(address)

    async def start(self) -> None:
        """Start all nodes. Raises ServerStartError."""
        for address in self.addresses:
            await self.start_node(address)

    async def start_node(self, address: str) -> None:
        """Start one node and wait until it takes clients."""
        await self.begin(address)
        await self.until_serving(address)
