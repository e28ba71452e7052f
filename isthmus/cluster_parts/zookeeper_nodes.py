"""Private ZooKeeper ensemble on loopback, from the jars that `make cluster-parts` fetches."""

from __future__ import annotations

from pathlib import Path

from isthmus.brokers.ports import free_ports
from isthmus.cluster_parts.server_group import ServerGroup
from isthmus.cluster_parts.server_tls import ServerTls
from isthmus.cluster_parts.zookeeper_member import MemberPorts, ZookeeperMember

START_WITHIN_S = 60.0
PATIENCE_S = 10.0


class ZookeeperNodes(ServerGroup):
    """Private ensemble in `folder`, whose members count from 0. With `tls` it asks clients for
    certificates.
    """

    def __init__(self, folder: Path, count: int, tls: ServerTls | None = None) -> None:
        ports = iter(free_ports(3 * count))
        ensemble = [MemberPorts(next(ports), next(ports), next(ports)) for _ in range(count)]
        members = [
            ZookeeperMember(folder / str(number + 1), ensemble, number, tls)
            for number in range(count)
        ]
        self.hosts = [f"127.0.0.1:{member.port}" for member in members]
        """HOST:PORT of each member, for clients."""
        super().__init__(
            "ZooKeeper",
            {str(number): member for number, member in enumerate(members)},
            start_within_s=START_WITHIN_S,
            patience_s=PATIENCE_S,
        )

    def pid(self, number: int) -> int:
        """Return the process ID of a member."""
        return self.pid_of(str(number))

    async def start_member(self, number: int) -> None:
        """Start one member, which serves clients once a majority is there."""
        await self.begin(str(number))
