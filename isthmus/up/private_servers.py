"""Private ZooKeeper and Cassandra of a mesh, for each site whose `cluster:` names none: one server
of each, on loopback, which all such sites share.

Ports are chosen once and kept in STATE/servers.json, so that restarts keep addresses.
"""

from __future__ import annotations

from pathlib import Path

from federation.brokers.addresses import (
    PrivateServers,
    read_private_servers,
    write_private_servers,
)
from isthmus.brokers.ports import free_ports
from isthmus.cluster_parts.cassandra_node import CassandraNode
from isthmus.cluster_parts.parts import check_parts
from isthmus.cluster_parts.zookeeper_member import MemberPorts, ZookeeperMember
from isthmus.up.supervised import ServerProcess

LOOPBACK = "127.0.0.1"


def private_servers(state: Path) -> list[ServerProcess]:
    """Plan both servers, and write where they will listen. Raises PartsMissing, BrokersFileBroken,
    NoFreePortError, OSError.
    """
    check_parts()
    ports = read_private_servers(state)
    if ports is None:
        ports = PrivateServers(*free_ports(3))
        write_private_servers(state, ports)
    folder = (state / "servers").absolute()
    zookeeper = ZookeeperMember(folder / "zookeeper", [MemberPorts(ports.zookeeper_port)])
    cassandra = CassandraNode(
        folder / "cassandra", LOOPBACK, ports.cassandra_port, ports.storage_port, seed=LOOPBACK
    )
    logs = state / "logs"
    return [
        ServerProcess("zookeeper", zookeeper, logs / "zookeeper.log"),
        ServerProcess("cassandra", cassandra, logs / "cassandra.log"),
    ]
