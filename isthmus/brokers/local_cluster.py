"""A private RabbitMQ cluster on loopback: several nodes that share a port mapper and a cookie.

Each node is a `LocalBroker` with a folder and ports of its own, so that a test may kill, suspend
and restart the nodes one by one. Nodes join the founder by themselves; a node that is ready has
joined.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace

from isthmus.brokers.config import BrokerSpec, ClusterPeers
from isthmus.brokers.epmd import Epmd
from isthmus.brokers.errors import BrokerStartError
from isthmus.brokers.installation import RabbitMQInstallation
from isthmus.brokers.local_brokers import LocalBroker

_MOST_STARTS = 3


class LocalCluster:
    """The nodes of one cluster, the founder first."""

    def __init__(self, nodes: Sequence[LocalBroker]) -> None:
        self.nodes = tuple(nodes)

    @property
    def specs(self) -> tuple[BrokerSpec, ...]:
        """Specifications of the nodes."""
        return tuple(node.spec for node in self.nodes)

    async def start(self, *, deadline_s: float = 120.0) -> None:
        """Start all nodes, and wait until each is ready and has joined.

        The first time the founder goes before the others: several nodes that create a virtual host
        at once wait for each other. Later all start at once, as the last one to end may be any.

        Raises BrokerStartError; nothing is left running then.
        """
        with contextlib.ExitStack() as unless_all_run:
            unless_all_run.callback(self.kill)
            limit = time.monotonic() + deadline_s
            if not self.nodes[0].has_data:
                await _start(self.nodes[0], limit)
            await asyncio.gather(*(_start(node, limit) for node in self.nodes))
            unless_all_run.pop_all()

    async def stop(self) -> None:
        """End all nodes in good order, one after the other: the last keeps what all know."""
        for node in reversed(self.nodes):
            await node.stop()

    def kill(self) -> None:
        """SIGKILL all nodes at once; returns when they are gone."""
        for node in self.nodes:
            node.kill()


async def _start(node: LocalBroker, limit: float) -> None:
    """Start one node, again if need be: a node that finds another half started may end at once."""
    for _ in range(_MOST_STARTS - 1):
        try:
            await node.start(deadline_s=limit - time.monotonic())
        except BrokerStartError:
            if time.monotonic() >= limit:
                raise
        else:
            return
    await node.start(deadline_s=limit - time.monotonic())


def peered(specs: Sequence[BrokerSpec], cookie: str | None = None) -> tuple[BrokerSpec, ...]:
    """Make these brokers nodes of one cluster, founded by the first.

    Nodes on one host have to have the same `epmd_port`, and different names and ports. A cookie is
    made when none is given.
    """
    names = tuple(spec.node_name for spec in specs)
    if len(set(names)) < len(names):
        raise ValueError(f"nodes of one cluster have different names, not {', '.join(names)}")
    peers = ClusterPeers(names, cookie or secrets.token_hex(16))
    return tuple(replace(spec, peers=peers) for spec in specs)


def local_cluster(
    specs: Sequence[BrokerSpec], installation: RabbitMQInstallation, *, die_with_parent: bool = True
) -> LocalCluster:
    """A cluster of brokers that are `peered`, not yet started."""
    mappers: dict[tuple[str, int], Epmd] = {}
    return LocalCluster(
        [
            LocalBroker(
                spec,
                installation,
                die_with_parent=die_with_parent,
                epmd=mappers.setdefault((spec.host, spec.epmd_port), Epmd()),
            )
            for spec in specs
        ]
    )
