"""The mesh that is put to the test: four sites, a broker, a node and load at each, and a line of
the WAN proxy under each link.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from federation.group_key import new_group_key
from isthmus.brokers.installation import RabbitMQInstallation
from relay.bulk_amqp import connect
from tests.chaos.schedule import EXCHANGE, SHARED_SITE
from tests.chaos.shared_servers import NODES, SharedServers
from tests.group_network import GroupNetwork, free_udp_port, group_network
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.load import Load
from tests.journeys.test_kills import QUEUES_SETTLE_S
from tests.journeys.test_signed_mesh import keys
from tests.journeys.traffic import TrafficSink
from tests.live_brokers import START_WITHIN_S, discard, local_broker, own_vhost
from wan_proxy import LAN, ProxiedLine, WanProxy

SITES = ("paris", "tokyo", "sydney", "lima")
GRAPHS = {
    "ring": tuple((site, SITES[(n + 1) % len(SITES)]) for n, site in enumerate(SITES)),
    "line": tuple(pairwise(SITES)),
}
"""Pairs of sites that are linked both ways. A ring always has another way; in a line each log and
each link is the only one that what is behind it may come by."""
REPLAYERS = SITES[:2]
GROUP = "group"
ALL_GRAPHS = {
    **GRAPHS,
    GROUP: (REPLAYERS, *((one, other) for one in REPLAYERS for other in SITES[2:])),
}
"""Besides, a multicast group of all sites before the links with two replayers. Its network has to
be made by root."""
WITNESS, VICTIM = "sink.orders", "victim.orders"
"""Two queues a site, bound alike. Faults strike the second; the first says what it was given."""
VICTIM_ARGUMENTS = {"x-overflow": "reject-publish"}
"""From the beginning: a limit that comes together with it drops messages before it is heeded."""
NEVER_GIVES_UP = {"max_attempts": 1000, "backoff": ["0.1s", "2s"]}
BODY_BYTES = 600
"""Noise, of which a line of 64 kbit/s carries less than the others publish."""


@dataclass(slots=True)
class World:
    """Made by `standing`."""

    mesh: LiveMesh
    load: Load
    has_other_ways: bool
    """Around any one link or site."""
    victims: dict[str, TrafficSink]
    """By site: the queues that faults strike. Nobody consumes them, nor the witnesses, before the
    end: a killed broker forgets acknowledgements, and would bring again what the mesh did not."""
    struck: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """By site: how many messages the witness had had before and after each time that the victim
    lost all it had, or was away."""
    network: GroupNetwork | None = None
    """Network of the group, if the mesh has one."""
    servers: SharedServers | None = None
    """Servers that the nodes of SHARED_SITE share; None: each site has one node."""
    ended: list[str] = field(default_factory=list)
    """Nodes that ended of their own accord, and how."""

    def interface(self, site: str) -> str:
        """Address of the site in the network of the group."""
        assert self.network is not None
        return list(self.network.addresses.values())[SITES.index(site)]

    def nodes(self, site: str) -> list[str]:
        """Names of the site's node processes."""
        if self.servers is None or site != SHARED_SITE:
            return [site]
        return [f"{site}/{node}" for node in NODES]

    async def runs(self, site: str) -> str:
        """Name of the node process that has the site's state, once one does, also while its broker
        is away.
        """
        if len(self.nodes(site)) == 1:
            return site

        def with_state(told: dict[str, Any]) -> str | None:
            nodes = told["sites"][site].get("nodes", {})
            return next((name for name, node in nodes.items() if 0 in node["slots"]), None)

        return f"{site}/{await self.mesh.until_told(with_state, f'a node has {site}')}"

    def start(self, node: str) -> None:
        """Start a node process by its name."""
        site, _, name = node.partition("/")
        if name:
            self.mesh.start_node(site, name)
        else:
            self.mesh.start([site])

    def lines(self, here: str, there: str) -> tuple[ProxiedLine, ProxiedLine]:
        """Those of the link from here to there, and of the one back."""
        return self.mesh.lines[here, there], self.mesh.lines[there, here]

    async def witnessed(self, site: str) -> int:
        """How many messages the site's witness has: all that it was ever given."""
        connection = await connect(self.mesh.uri(site), name="chaos")
        try:
            channel = await connection.channel()
            return (await channel.declare_queue(WITNESS, passive=True)).message_count
        finally:
            await connection.close()

    def start_what_ended(self) -> None:
        """A node that nobody ended is a promise broken; the run goes on to say what else is."""
        for site, process in list(self.mesh.processes.items()):
            code = process.poll()
            if code is not None:
                self.ended.append(f"the node of {site} ended by itself: {code}")
                self.start(site)


@contextlib.asynccontextmanager
async def standing(
    folder: Path,
    installation: RabbitMQInstallation,
    graph: str,
    seed: int,
    per_second: float,
    *,
    several_nodes: bool = False,
) -> AsyncIterator[World]:
    """A mesh that runs, with load at every site; `per_second` messages each. `several_nodes`: of
    SHARED_SITE.
    """
    brokers = {site: local_broker(installation, folder / site, site) for site in SITES}
    async with contextlib.AsyncExitStack() as made:
        for broker in brokers.values():
            made.callback(discard, broker)
        await asyncio.gather(*(b.start(deadline_s=START_WITHIN_S) for b in brokers.values()))
        vhosts = {site: await own_vhost(broker, site) for site, broker in brokers.items()}
        proxy = await made.enter_async_context(WanProxy(seed=seed))
        document: dict[str, Any] = {
            "topology": "custom",
            "exchanges": [{"name": EXCHANGE, "retry": NEVER_GIVES_UP}],
        }
        network = None
        if graph == GROUP:
            network = made.enter_context(group_network(len(SITES)))
            document |= group_document(folder, network)
        servers = None
        if several_nodes:
            servers = await made.enter_async_context(SharedServers.started(folder / "servers"))
            document.setdefault("sites", {site: {} for site in SITES})
            document["sites"][SHARED_SITE] |= servers.keys
        mesh = LiveMesh(folder, document, vhosts)
        made.push_async_callback(mesh.close)
        for here, there in ALL_GRAPHS[graph]:
            await mesh.go_over(proxy, here, there, LAN)
            await mesh.go_over(proxy, there, here, LAN)
        await mesh.prepare()
        settled = asyncio.create_task(asyncio.sleep(QUEUES_SETTLE_S))
        mesh.start_each()
        load = Load(mesh, per_second=per_second / 2, size=BODY_BYTES)
        made.push_async_callback(load.close)
        await load.declare()
        victims = await _victims(mesh)
        for victim in victims.values():
            made.push_async_callback(victim.close)
        await mesh.running()
        load.begin()
        await settled
        struck: dict[str, list[tuple[int, int]]] = {site: [] for site in SITES}
        yield World(mesh, load, graph != "line", victims, struck, network=network, servers=servers)


def group_document(folder: Path, network: GroupNetwork) -> dict[str, Any]:
    """Keys of a mesh file with a group of all sites, each at its interface."""
    key = folder / "group.key"
    key.write_text(new_group_key())
    multicast = {
        "group": f"239.192.7.2:{free_udp_port()}",
        "key": f"file:{key}",
        "rate": "20MB/s",
        "replayers": list(REPLAYERS),
    }
    addresses = zip(SITES, network.addresses.values(), strict=True)
    return {
        "topology": {"multicast": multicast},
        "links": [
            # As the topology has it: a line has to know where the link meets.
            {"from": replayer, "to": other, "dial": "from"}
            for replayer in REPLAYERS
            for other in SITES[len(REPLAYERS) :]
        ],
        "batch_format": 2,
        "signing": "ed25519",
        "sites": {
            site: keys(folder, site, site) | {"multicast": address} for site, address in addresses
        },
    }


async def _victims(mesh: LiveMesh) -> dict[str, TrafficSink]:
    sinks: dict[str, TrafficSink] = {}
    for site in SITES:
        sink = TrafficSink(mesh.uri(site), mesh.cluster(site), EXCHANGE, queue=VICTIM)
        await sink.declare(**VICTIM_ARGUMENTS)
        sinks[site] = sink
    return sinks
