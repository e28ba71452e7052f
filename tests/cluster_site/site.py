"""A mesh of three sites; `paris` is a cluster, whose broker nodes are hosts of their own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from federation.names import Names
from isthmus.brokers.config import BrokerSpec
from isthmus.brokers.installation import RabbitMQInstallation
from isthmus.brokers.local_brokers import LocalBroker
from isthmus.brokers.private_brokers import CLUSTER_NET_TICK_S, peered
from tests.cluster_site.probes import Probe, Watch
from tests.host_namespaces import HostNamespaces
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.load import ANONYMOUS, NAMED, Load
from tests.live_brokers import ADMIN, START_WITHIN_S, api, discard, local_broker, own_vhost
from tests.local_cluster import LocalCluster, local_cluster
from tests.locks.disturbances import control
from tests.waiting import until

CLUSTER, OTHERS = "paris", ("tokyo", "oslo")
PORTS = (5672, 5552, 15672, 25672)
EXCHANGE = "orders"
WATCH_QUEUE = "watch"
SETTLED_WITHIN_S = 180.0
VHOST = "/"


@dataclass(frozen=True, slots=True)
class Outage:
    """Longest times without anything new, in seconds, while one disturbance lasted."""

    disturbance: str
    leads: str
    """Leaders that the node had before."""
    outward_s: float
    """At tokyo, of paris."""
    inward_s: float
    """At paris, of tokyo."""
    others_s: float
    """Between tokyo and oslo, the longer of both ways."""

    def __str__(self) -> str:
        return (
            f"| {self.disturbance} | {self.leads} | {self.outward_s:.1f} | {self.inward_s:.1f} | "
            f"{self.others_s:.1f} |"
        )


@dataclass
class ClusterMesh:
    """The mesh under load, its cluster, and the watches."""

    hosts: HostNamespaces
    cluster: LocalCluster
    mesh: LiveMesh
    load: Load
    watches: dict[str, Watch]
    members: list[LocalBroker] = field(default_factory=list)
    """Broker nodes that belong to the cluster now."""
    outages: list[Outage] = field(default_factory=list)
    _lacking: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> Names:
        return Names(self.mesh.mesh.name)

    async def leads(self, node: LocalBroker) -> str:
        """Name the relay's queues that a node leads, for people."""
        found = {
            one["name"]: one.get("leader") or one.get("node")
            for one in await queues(self._other_than(node))
        }
        names = self.names
        known = {
            names.egress(EXCHANGE): "egress",
            names.log: "log",
            names.packer_lease: "packer's lease",
            names.deliverer_lease: "deliverer's lease",
        }
        led = [what for name, what in known.items() if found.get(name) == node.spec.node_name]
        return ", ".join(led) or "none"

    async def disturbed(
        self, what: str, node: LocalBroker, disturb: Callable[[], Awaitable[None]]
    ) -> None:
        """Disturb a node, wait until everything is as before, and note the outages."""
        leads = await self.leads(node)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await disturb()
        await self.settle(loop.time())
        ended = loop.time()
        gaps = {
            (site, origin): self.watches[site].longest_gap(origin, began, ended)
            for site, origin in (
                ("tokyo", CLUSTER),
                (CLUSTER, "tokyo"),
                ("oslo", "tokyo"),
                ("tokyo", "oslo"),
            )
        }
        outage = Outage(
            what,
            leads,
            gaps["tokyo", CLUSTER],
            gaps[CLUSTER, "tokyo"],
            max(gaps["oslo", "tokyo"], gaps["tokyo", "oslo"]),
        )
        self.outages.append(outage)
        print(outage, flush=True)

    async def settle(self, since: float) -> None:
        """Wait until every queue has all its members, every link runs, and all that is watched has
        come since then.
        """
        await self.has_members(SETTLED_WITHIN_S)
        await self.mesh.running(within_s=SETTLED_WITHIN_S)
        await self.passes(since)

    async def has_members(self, within_s: float) -> None:
        """Wait until every queue has all its members. Raises TimeoutError, which names who lacks
        whom.
        """
        await until(self._has_members, self._members_told, within_s, every_s=0.5)

    async def has_no_partition(self, within_s: float) -> None:
        """Wait until every node takes every other one for a member. Raises TimeoutError."""

        async def is_whole() -> bool:
            try:
                nodes = [one for node in self.members for one in await api(node, "GET", "/nodes")]
            except (OSError, aiohttp.ClientError):
                return False
            return all(one.get("running") and not one.get("partitions") for one in nodes)

        await until(is_whole, "no node takes another for cut off", within_s, every_s=0.5)

    async def passes(self, since: float) -> None:
        """Wait until something of every site has come to every other one since then."""
        await until(
            lambda: all(
                watch.came_since(origin, since)
                for site, watch in self.watches.items()
                for origin in self.watches
                if origin != site
            ),
            "messages pass again",
            SETTLED_WITHIN_S,
        )

    async def grow(self, node: LocalBroker) -> None:
        """Give every queue a member at that node, which has joined, and the mesh file its
        addresses.
        """
        name = node.spec.node_name
        await control(node, "grow", name, "all", program="rabbitmq-queues")
        # A node of 3.10 that has no stream yet would begin a coordinator of its own.
        has_log = self.members[0]
        for stream in await self._streams():
            await control(has_log, "add_replica", stream, name, program="rabbitmq-streams")
        self.members.append(node)
        await self._list_members()

    async def shrink(self, node: LocalBroker) -> None:
        """Take the members at that node out of every queue, and its addresses out of the mesh
        file.
        """
        name = node.spec.node_name
        self.members.remove(node)
        await self._list_members()
        other = self.members[0]
        await control(other, "shrink", name, program="rabbitmq-queues")
        for stream in await self._streams():
            await control(other, "delete_replica", stream, name, program="rabbitmq-streams")

    async def _streams(self) -> list[str]:
        found = await queues(self.members[0])
        return [one["name"] for one in found if one.get("type") == "stream"]

    async def _list_members(self) -> None:
        sites = dict(self.mesh.document["sites"])
        await self.mesh.change(sites={**sites, CLUSTER: of_cluster(self.members)})

    async def _has_members(self) -> bool:
        wanted = {node.spec.node_name for node in self.members}
        self._lacking = {}
        for node in self.members:
            name = node.spec.node_name
            try:
                found = await queues(node)
            except (OSError, aiohttp.ClientError) as error:
                self._lacking[name] = str(error)
                continue
            for one in found:
                # A stream's statistics may be gone for good on 3.10, though all its replicas run.
                kind = one.get("type")
                if kind != "quorum" and (kind != "stream" or "online" not in one):
                    continue
                if missing := wanted.difference(one.get("online", ())):
                    self._lacking[f"{one['name']} by {name}"] = ", ".join(sorted(missing))
        return not self._lacking

    def _members_told(self) -> str:
        lacking = "; ".join(f"{where}: {what}" for where, what in self._lacking.items())
        return f"every queue has every member, but {lacking}\n{self.mesh.logs()}"

    def _other_than(self, node: LocalBroker) -> LocalBroker:
        return next(one for one in self.members if one is not node)


async def queues(node: LocalBroker) -> list[dict[str, Any]]:
    """All queues that a node knows of. Raises OSError, as a node that is down does."""
    found: list[dict[str, Any]] = await api(node, "GET", "/queues/%2F")
    return found


@contextlib.asynccontextmanager
async def cluster_mesh(
    folder: Path,
    installation: RabbitMQInstallation,
    *,
    per_second: float,
    spare: int = 0,
    net_tick_s: int = CLUSTER_NET_TICK_S,
    more_keys: Mapping[str, Any] | None = None,
) -> AsyncIterator[ClusterMesh]:
    """Run the mesh while the block lasts, with so many messages a second from paris and tokyo each.
    `spare` hosts have a broker node that is not started. `more_keys` are of paris in the mesh file.
    Needs root.
    """
    async with contextlib.AsyncExitStack() as stack:
        hosts = stack.enter_context(HostNamespaces(3 + spare))
        cluster = local_cluster(peered(_specs(folder, hosts, net_tick_s)), installation)
        stack.callback(lambda: [discard(node) for node in cluster.nodes])
        shared = local_broker(installation, folder / "shared", "shared")
        stack.callback(discard, shared)
        await shared.start(deadline_s=START_WITHIN_S)
        members = LocalCluster(cluster.nodes[:3])
        await members.start(deadline_s=START_WITHIN_S)
        vhosts = {site: await own_vhost(shared, site) for site in OTHERS}
        document = {
            "topology": "complete",
            "exchanges": [{"name": EXCHANGE}],
            "sites": {
                CLUSTER: {**of_cluster(members.nodes), **(more_keys or {})},
                **{site: {} for site in OTHERS},
            },
        }
        mesh = LiveMesh(folder / "mesh", document, vhosts)
        mesh.folder.mkdir()
        stack.push_async_callback(mesh.close)
        await mesh.prepare()
        mesh.start_each()
        load = Load(mesh, per_second=per_second / 2, kinds=(NAMED, ANONYMOUS))
        watches = {site: Watch(site, WATCH_QUEUE) for site in mesh.mesh.sites}
        made = ClusterMesh(hosts, cluster, mesh, load, watches, list(members.nodes))
        nodes = {CLUSTER: [spec.amqp_uri(ADMIN) for spec in cluster.specs]}
        nodes |= {site: [mesh.uri(site)] for site in OTHERS}
        stack.push_async_callback(load.close)
        await load.declare(**{"x-queue-type": "quorum"})
        for site, watch in watches.items():
            await watch.declare(nodes[site][0], EXCHANGE, 3 if site == CLUSTER else 1)
        tasks = [
            asyncio.create_task(run)
            for site, uris in nodes.items()
            for number, uri in enumerate(uris)
            for run in (
                watches[site].run(uri),
                Probe(uri, f"{site}/probe{number}", EXCHANGE).run(),
            )
        ]
        stack.push_async_callback(_ended, tasks)
        await mesh.running()
        load.begin([CLUSTER, "tokyo"])
        await made.settle(asyncio.get_running_loop().time())
        yield made


def of_cluster(nodes: Sequence[LocalBroker]) -> dict[str, Any]:
    """Keys of a site in the mesh file, for these broker nodes."""
    specs = [node.spec for node in nodes]
    return {
        "broker": [f"amqp://{ADMIN.name}@{spec.host}:{spec.amqp_port}/%2F" for spec in specs],
        "stream": [f"rabbitmq-stream://{spec.host}:{spec.stream_port}" for spec in specs],
        "management": [spec.management_url for spec in specs],
        "password": ADMIN.password,
    }


def _specs(folder: Path, hosts: HostNamespaces, net_tick_s: int) -> list[BrokerSpec]:
    return [
        BrokerSpec(
            f"n{host + 1}",
            folder / f"n{host + 1}",
            *PORTS,
            epmd_port=4369,
            users=(ADMIN,),
            host=hosts.address(host),
            namespace=hosts.name(host),
            net_tick_s=net_tick_s,
        )
        for host in range(hosts.count)
    ]


async def _ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
