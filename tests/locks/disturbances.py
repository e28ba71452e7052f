"""Disturbances of a cluster while somebody holds a lock at its node number 1."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from isthmus.brokers.config import environment
from isthmus.brokers.local_brokers import LocalBroker
from tests.host_namespaces import HostNamespaces
from tests.live_brokers import START_WITHIN_S
from tests.local_cluster import LocalCluster
from tests.locks.contenders import LEASE, Contender
from tests.locks.traffic import Traffic
from tests.waiting import until

HOLDER, OTHER = 1, 2
AWAY_S = 30.0
SETTLED_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Site:
    """The cluster that is disturbed, the hosts of its nodes, and who uses the cluster."""

    cluster: LocalCluster
    hosts: HostNamespaces
    contenders: Sequence[Contender]
    traffic: Sequence[Traffic]

    @property
    def holder(self) -> LocalBroker:
        return self.cluster.nodes[HOLDER]

    async def settle(self) -> None:
        """Wait until the locks have one holder each and every queue confirms, all of that anew. A
        trial that does not settle in time goes on: its verdict tells why.
        """
        since = asyncio.get_running_loop().time()
        with contextlib.suppress(TimeoutError):
            await until(lambda: self._is_settled(since), "settled", SETTLED_WITHIN_S)

    def _is_settled(self, since: float) -> bool:
        beliefs = [each.belief for each in self.contenders]
        held = [start for belief in beliefs if (start := belief.has_queue_since) is not None]
        if len(held) != 1:
            return False
        # Whoever else contends has asked once more, and was refused.
        asked = max(since, *held)
        return (
            all(
                each.is_over
                or each.belief.has_queue_since is not None
                or each.belief.refused_at > asked
                for each in self.contenders
            )
            and any(belief.proofs and belief.proofs[-1][0] > since for belief in beliefs)
            and all(each.confirms and each.confirms[-1] > since for each in self.traffic)
        )


Disturbance = Callable[[Site], Awaitable[None]]


async def killed(site: Site) -> None:
    site.holder.kill()
    await asyncio.sleep(AWAY_S)  # the time is the disturbance, as in the next two
    await site.holder.start(deadline_s=START_WITHIN_S)
    await site.settle()


def stopped(seconds: float) -> Disturbance:
    async def disturb(site: Site) -> None:
        site.holder.suspend()
        await asyncio.sleep(seconds)
        site.holder.resume()
        await site.settle()

    return disturb


def isolated(host: int, seconds: float) -> Disturbance:
    async def disturb(site: Site) -> None:
        site.hosts.isolate(host)
        await asyncio.sleep(seconds)
        site.hosts.heal()
        await site.settle()

    return disturb


async def restarted_in_turn(site: Site) -> None:
    for node in site.cluster.nodes:
        await node.stop()
        await node.start(deadline_s=START_WITHIN_S)
        await site.settle()


async def leaders_moved(site: Site) -> None:
    names = [f"'{spec.node_name}'" for spec in site.cluster.specs]
    for target in (names[OTHER], names[0], names[HOLDER]):
        await control(
            site.holder,
            "eval",
            f"{{_, _, L}} = ra:members({{'%2F_{LEASE}', node()}}), "
            f"ra:transfer_leadership(L, {{'%2F_{LEASE}', {target}}}).",
        )
        await until(
            lambda target=target: leads(site, target),  # type: ignore[misc]
            f"{target} leads the lease's queue",
            SETTLED_WITHIN_S,
        )
        await site.settle()


async def leads(site: Site, node: str) -> bool:
    """True if that node (an atom of Erlang's) leads the lease's queue."""
    found = await control(
        site.holder, "eval", f"{{_, _, {{_, L}}}} = ra:members({{'%2F_{LEASE}', node()}}), L."
    )
    return found.strip().strip("'") == node.strip("'")


async def drained(site: Site) -> None:
    await control(site.holder, "drain", program="rabbitmq-upgrade")
    await site.settle()
    await control(site.holder, "revive", program="rabbitmq-upgrade")
    await site.settle()


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
