"""Disturbances of the cluster of one site, each node in turn."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping

from isthmus.brokers.local_brokers import LocalBroker
from tests.cluster_site.site import CLUSTER, ClusterMesh
from tests.live_brokers import START_WITHIN_S
from tests.locks.disturbances import control

HANGS_S = 45.0
"""Longer than every time-out that has to notice."""
CUT_OFF_S = 60.0
TAKEN_BACK_WITHIN_S = 20.0

Disturbance = Callable[[ClusterMesh], Awaitable[None]]


async def killed(mesh: ClusterMesh) -> None:
    """SIGKILL each node, and start it again once messages pass without it."""
    for node in mesh.members:

        async def disturb(node: LocalBroker = node) -> None:
            node.kill()
            await mesh.passes(asyncio.get_running_loop().time())
            await node.start(deadline_s=START_WITHIN_S)

        await mesh.disturbed("killed", node, disturb)


async def hung(mesh: ClusterMesh) -> None:
    """SIGSTOP each node for 45 s."""
    for node in mesh.members:

        async def disturb(node: LocalBroker = node) -> None:
            node.suspend()
            await asyncio.sleep(HANGS_S)  # the time is the disturbance, as in the next
            node.resume()
            await mended(mesh, node)

        await mesh.disturbed(f"hangs for {HANGS_S:.0f} s", node, disturb)


async def cut_off(mesh: ClusterMesh) -> None:
    """Cut each node off from the others for 60 s; whoever uses the site still reaches the node."""
    for number, node in enumerate(mesh.members):

        async def disturb(number: int = number) -> None:
            mesh.hosts.isolate(number)
            await asyncio.sleep(CUT_OFF_S)
            mesh.hosts.heal()
            await mended(mesh, mesh.members[number])

        await mesh.disturbed(f"cut off for {CUT_OFF_S:.0f} s", node, disturb)


async def mended(mesh: ClusterMesh, node: LocalBroker) -> None:
    """Restart a node that still takes others for cut off, as `isthmus doctor` advises: Mnesia holds
    a hang for a partition, and `pause_minority` does not always end one.
    """
    try:
        await mesh.has_no_partition(TAKEN_BACK_WITHIN_S)
    except TimeoutError:
        print(f"{node.spec.node_name} takes others for cut off, and is restarted", flush=True)
        await node.stop()
        await node.start(deadline_s=START_WITHIN_S)


async def restarted_in_turn(mesh: ClusterMesh) -> None:
    """End each node in order, and start it again."""
    for node in mesh.members:

        async def disturb(node: LocalBroker = node) -> None:
            await node.stop()
            await node.start(deadline_s=START_WITHIN_S)

        await mesh.disturbed("restarted", node, disturb)


async def replaced(mesh: ClusterMesh) -> None:
    """Add a fourth node to cluster and mesh file, and take the first one out of both."""
    first = mesh.members[0]
    fourth = mesh.cluster.nodes[3]

    async def add() -> None:
        await fourth.start(deadline_s=START_WITHIN_S)
        await mesh.grow(fourth)

    await mesh.disturbed("a fourth is added", first, add)

    async def take_out() -> None:
        await mesh.shrink(first)
        await first.stop()
        await control(fourth, "forget_cluster_node", first.spec.node_name)

    await mesh.disturbed("taken out", first, take_out)


async def killed_with_the_sites_node(mesh: ClusterMesh) -> None:
    """SIGKILL each broker node and the node that runs the site at once, and start both again once
    messages pass without them.
    """
    for broker in mesh.members:

        async def disturb(broker: LocalBroker = broker) -> None:
            node = await mesh.mesh.node_that_runs(CLUSTER)
            mesh.mesh.kill(f"{CLUSTER}/{node}")
            broker.kill()
            await mesh.passes(asyncio.get_running_loop().time())
            mesh.mesh.start_node(CLUSTER, node)
            await broker.start(deadline_s=START_WITHIN_S)

        await mesh.disturbed("killed with the site's node", broker, disturb)


async def cut_off_with_the_sites_node(mesh: ClusterMesh) -> None:
    """Cut each broker node off and freeze the node that runs the site, for 60 s."""
    for number, broker in enumerate(mesh.members):

        async def disturb(number: int = number, broker: LocalBroker = broker) -> None:
            node = await mesh.mesh.node_that_runs(CLUSTER)
            mesh.hosts.isolate(number)
            mesh.mesh.kill(f"{CLUSTER}/{node}", signal.SIGSTOP)
            try:
                await asyncio.sleep(CUT_OFF_S)
                await mesh.passes(asyncio.get_running_loop().time())
            finally:
                mesh.mesh.kill(f"{CLUSTER}/{node}", signal.SIGCONT)
                mesh.hosts.heal()
            await mended(mesh, broker)

        await mesh.disturbed("cut off with the site's node", broker, disturb)


WITH_NODES: Mapping[str, Disturbance] = {
    "killed with the site's node": killed_with_the_sites_node,
    "cut off with the site's node": cut_off_with_the_sites_node,
}
"""Disturbances of a site of two nodes."""

DISTURBANCES: Mapping[str, Disturbance] = {
    **WITH_NODES,
    "killed": killed,
    "hung": hung,
    "cut off": cut_off,
    "restarted in turn": restarted_in_turn,
    "replaced": replaced,
}
