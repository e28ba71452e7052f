"""Disturbances of a cluster while somebody holds a lock at its node number 1."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from isthmus.broker_config import environment
from isthmus.local_brokers import LocalBroker
from isthmus.local_cluster import LocalCluster
from tests.host_namespaces import HostNamespaces
from tests.live_brokers import START_WITHIN_S
from tests.locks.contenders import LEASE

HOLDER, OTHER = 1, 2
AFTER_S = 30.0


@dataclass(frozen=True, slots=True)
class Site:
    """The cluster that is disturbed, and the hosts of its nodes."""

    cluster: LocalCluster
    hosts: HostNamespaces

    @property
    def holder(self) -> LocalBroker:
        return self.cluster.nodes[HOLDER]


Disturbance = Callable[[Site], Awaitable[None]]


async def killed(site: Site) -> None:
    site.holder.kill()
    await asyncio.sleep(AFTER_S)
    await site.holder.start(deadline_s=START_WITHIN_S)
    await asyncio.sleep(AFTER_S)


def stopped(seconds: float) -> Disturbance:
    async def disturb(site: Site) -> None:
        site.holder.suspend()
        await asyncio.sleep(seconds)
        site.holder.resume()
        await asyncio.sleep(AFTER_S)

    return disturb


def isolated(host: int, seconds: float) -> Disturbance:
    async def disturb(site: Site) -> None:
        site.hosts.isolate(host)
        await asyncio.sleep(seconds)
        site.hosts.heal()
        await asyncio.sleep(2 * AFTER_S)

    return disturb


async def restarted_in_turn(site: Site) -> None:
    for node in site.cluster.nodes:
        await node.stop()
        await node.start(deadline_s=START_WITHIN_S)
        await asyncio.sleep(5)
    await asyncio.sleep(5)


async def leaders_moved(site: Site) -> None:
    names = [f"'{spec.node_name}'" for spec in site.cluster.specs]
    for target in (names[OTHER], names[0], names[HOLDER]):
        await control(
            site.holder,
            "eval",
            f"{{_, _, L}} = ra:members({{'%2F_{LEASE}', node()}}), "
            f"ra:transfer_leadership(L, {{'%2F_{LEASE}', {target}}}).",
        )
        await asyncio.sleep(5)


async def drained(site: Site) -> None:
    await control(site.holder, "drain", program="rabbitmq-upgrade")
    await asyncio.sleep(AFTER_S)
    await control(site.holder, "revive", program="rabbitmq-upgrade")
    await asyncio.sleep(AFTER_S)


DISTURBANCES: Mapping[str, Disturbance] = {
    "its node is killed, and back after 30 s": killed,
    "its node is stopped for 5 s": stopped(5),
    "its node is stopped for 30 s": stopped(30),
    "its node is stopped for 120 s": stopped(120),
    "its node is cut off for 120 s": isolated(HOLDER, 120),
    "another node is cut off for 120 s": isolated(OTHER, 120),
    "all nodes are restarted in turn": restarted_in_turn,
    "the lease's leader moves three times": leaders_moved,
    "its node is drained for maintenance": drained,
}


async def control(
    node: LocalBroker, *words: str, program: str = "rabbitmqctl", within_s: float = 120
) -> str:
    """Run one of the broker's own programs beside a node; what it printed."""
    spec, installation = node.spec, node.installation
    command = installation.command(
        spec.folder.absolute(), str(installation.home / "sbin" / program), *words
    )
    if spec.namespace:
        command = ("ip", "netns", "exec", spec.namespace, *command)
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environment(spec, installation, os.environ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), within_s)
    if process.returncode != 0:
        raise RuntimeError(output.decode())
    return output.decode()
