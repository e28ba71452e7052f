"""One trial: a fresh mesh whose site on a cluster is disturbed, and what became of messages."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.brokers.installation import RabbitMQInstallation
from isthmus.brokers.private_brokers import CLUSTER_NET_TICK_S
from isthmus.cluster_parts.cassandra_nodes import CassandraNodes
from isthmus.cluster_parts.zookeeper_nodes import ZookeeperNodes
from tests.cluster_site.disturbances import DISTURBANCES, WITH_NODES
from tests.cluster_site.site import CLUSTER, Outage, cluster_mesh
from tests.journeys.load import Load

ARRIVED_WITHIN_S = 240.0
HANGS = ("hung", "cut off", "cut off with the site's node")
"""Disturbances in which a node goes on with what it had taken."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Findings of a trial in which nothing was lost, and nothing repeated unflagged but what landed
    late.
    """

    outages: Sequence[Outage]
    confirmed: int
    flagged: int
    late: Counter[str]
    """Confirmed messages that came behind a later one of theirs, by site and stream."""
    landed: int
    """Deliveries that a node had taken before it hung, and did once it went on: each came behind
    the flagged copy that had replaced it, and is known by that (2.15 in docs/promises.md).
    """

    def __str__(self) -> str:
        late = ", ".join(f"{count} {where}" for where, count in self.late.items()) or "none"
        return (
            f"{self.confirmed} confirmed, {self.flagged} flagged, late: {late}, "
            f"landed behind a flagged copy: {self.landed}"
        )


async def run_trial(
    folder: Path,
    installation: RabbitMQInstallation,
    name: str,
    *,
    per_second: float,
    net_tick_s: int = CLUSTER_NET_TICK_S,
) -> Outcome:
    """One kind of disturbance of each node, by its name. Needs root. Raises Broken."""
    spare = 1 if name == "replaced" else 0
    async with AsyncExitStack() as stack:
        keys = await _two_nodes(folder, stack) if name in WITH_NODES else {}
        mesh = await stack.enter_async_context(
            cluster_mesh(
                folder,
                installation,
                per_second=per_second,
                spare=spare,
                net_tick_s=net_tick_s,
                more_keys=keys,
            )
        )
        await DISTURBANCES[name](mesh)
        await mesh.load.end()
        mesh.load.consume()
        await mesh.load.arrived(within_s=ARRIVED_WITHIN_S)
        landed = take_out_landed(mesh.load) if name in HANGS else 0
        flags = mesh.load.check(lambda site, origin: 1 << 30, ordered=False)
        return Outcome(
            mesh.outages,
            mesh.load.published,
            sum(sum(counts.values()) for counts in flags.values()),
            late(mesh.load),
            landed,
        )


async def _two_nodes(folder: Path, stack: AsyncExitStack) -> dict[str, Any]:
    """Start what two nodes share; return the keys of their site."""
    zookeeper, cassandra = ZookeeperNodes(folder / "zk", 1), CassandraNodes(folder / "cass", 1)
    await asyncio.gather(*map(stack.enter_async_context, (zookeeper, cassandra)))
    hosts = [f"{address}:{cassandra.port}" for address in cassandra.addresses]
    servers = {"zookeeper": zookeeper.hosts, "cassandra": {"hosts": hosts, "replication": 1}}
    return {"nodes": ["paris-a", "paris-b"], "cluster": servers}


def take_out_landed(load: Load) -> int:
    """Take out of what the cluster's consumers got unflagged what had come flagged before; tell how
    much. A message that came unflagged twice stays.
    """
    landed = 0
    for (site, _), sink in load.sinks.items():
        if site != CLUSTER:
            continue
        flagged: set[tuple[str, int]] = set()
        once: set[tuple[str, int]] = set()
        kept = []
        for message in sink.arrived:
            key = (message.origin, message.number)
            if message.flagged:
                flagged.add(key)
            elif key in flagged and key not in once:
                once.add(key)
                landed += 1
                continue
            else:
                once.add(key)
            kept.append(message)
        sink.arrived[:] = kept
    return landed


def late(load: Load) -> Counter[str]:
    """Confirmed messages whose first copy came behind a later one's, by site and stream.

    A message that its publisher had no answer for may be taken late by its broker: see 2.15 in
    docs/promises.md.
    """
    confirmed = {stream.source.origin: stream.source.confirmed for stream in load.streams}
    found: Counter[str] = Counter()
    for (site, _), sink in load.sinks.items():
        last: dict[str, int] = defaultdict(lambda: -1)
        for message in sink.arrived:
            if message.origin == sink.site or message.flagged:
                continue
            if message.number not in confirmed.get(message.origin, ()):
                continue
            if message.number < last[message.origin]:
                found[f"{message.origin} at {site}"] += 1
            else:
                last[message.origin] = message.number
    return found
