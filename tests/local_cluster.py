"""Cluster of RabbitMQ nodes on loopback, for tests: nodes start, stop and end together or alone."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

from isthmus.brokers.config import BrokerSpec
from isthmus.brokers.errors import BrokerStartError
from isthmus.brokers.installation import RabbitMQInstallation
from isthmus.brokers.local_brokers import Epmd, LocalBroker

_MOST_STARTS = 3


class LocalCluster:
    """Private cluster on loopback, founder first: nodes share a port mapper and a cookie.

    Each node is a `LocalBroker` with its own folder and ports, so that a test may kill, suspend and
    restart nodes singly. Nodes join the founder by themselves; a ready node has joined.
    """

    def __init__(self, nodes: Sequence[LocalBroker]) -> None:
        self.nodes = tuple(nodes)

    @property
    def specs(self) -> tuple[BrokerSpec, ...]:
        return tuple(node.spec for node in self.nodes)

    async def start(self, *, deadline_s: float = 120.0) -> None:
        """Start all nodes and wait until each is ready and has joined.

        At the first start the founder goes first: nodes that create a virtual host at once wait for
        each other. Later all start at once, since any may have ended last.

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
        """End the nodes in order, founder last, which then has the whole state."""
        for node in reversed(self.nodes):
            await node.stop()

    def kill(self) -> None:
        """Send SIGKILL to all nodes; return when all are gone."""
        for node in self.nodes:
            node.kill()


async def _start(node: LocalBroker, limit: float) -> None:
    """Start one node, with retries: a node that meets a half-started one may end at once."""
    for _ in range(_MOST_STARTS - 1):
        try:
            await node.start(deadline_s=limit - time.monotonic())
        except BrokerStartError:
            if time.monotonic() >= limit:
                raise
        else:
            return
    await node.start(deadline_s=limit - time.monotonic())


def local_cluster(specs: Sequence[BrokerSpec], installation: RabbitMQInstallation) -> LocalCluster:
    """Return the cluster of `peered` brokers, not yet started."""
    mappers: dict[tuple[str, int], Epmd] = {}
    return LocalCluster(
        [
            LocalBroker(
                spec,
                installation,
                epmd=mappers.setdefault((spec.host, spec.epmd_port), Epmd()),
            )
            for spec in specs
        ]
    )
