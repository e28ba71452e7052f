"""Mesh of the sites of a network: one broker, a virtual host a site, and a node a site.

Either a group goes before the links, or the first site has a link with each other one, as it has in
a complete graph: `complete` is all of these links, `star` none but those of the first site, whose
cost is the same, and of which two cores carry more.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.compare.brokers import SCHEDULERS, START_EACH_S
from benchmarks.compare.isthmus_way import MESH, IsthmusMesh
from benchmarks.compare.until import START_WITHIN_S, until
from benchmarks.multicast.site_network import SiteNetwork
from federation.brokers.addresses import ManagementAddress, PrivateBroker, write_private_brokers
from federation.brokers.credentials import load_or_make
from federation.brokers.management import ManagementApi
from federation.group_key import new_group_key
from federation.mesh_file import load_mesh
from federation.names import Names
from federation.signing_keys import private_key_pem, public_key_text
from isthmus.brokers.config import BrokerSpec, BrokerUser
from isthmus.brokers.installation import RabbitMQInstallation
from isthmus.brokers.local_brokers import LocalBroker
from isthmus.brokers.ports import free_ports
from isthmus.node_client import NodePlace
from isthmus.status import CARRIES
from relay.node.site_folder import site_folder

EXCHANGE = "orders"
GROUP_PORT = 7400
RATE = 2_500_000
"""Bytes a second that a site may send into the group."""
_GROUP = f"239.192.7.1:{GROUP_PORT}"
_ADMIN = "bench"
_FETCH = """import sys, urllib.request as web
sys.stdout.buffer.write(web.urlopen(sys.argv[1], timeout=5).read())"""
_AT_ONCE = 4
"""Nodes that start at the same time."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Way of the messages: `group`, `complete` or `star`, among some sites."""

    kind: str
    sites: int

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sites, the publisher's first."""
        return tuple(f"site{number}" for number in range(self.sites))

    @property
    def replayers(self) -> tuple[str, ...]:
        """Names of the two replayers of a group, none of which publishes."""
        return self.names[1:3]

    def links(self) -> Iterator[tuple[str, str]]:
        """Yield all links, as sender and receiver."""
        names = self.names
        if self.kind == "group":
            yield from (
                (one, other)
                for one in names
                for other in names
                if one != other and (one in self.replayers or other in self.replayers)
            )
        elif self.kind == "star":
            yield from ((names[0], other) for other in names[1:])
        else:
            yield from ((one, other) for one in names for other in names if one != other)


class MulticastMesh(IsthmusMesh):
    """Mesh of one shape on a network; `run_on` makes it."""

    def __init__(self, folder: Path, network: SiteNetwork, shape: Shape) -> None:
        only = {"from": [shape.names[0]]} if shape.kind == "star" else {}
        super().__init__(folder, [{"name": EXCHANGE} | only])
        self.shape = shape
        self._place = folder
        self._network = network
        self._password = secrets.token_hex(16)
        self.broker: LocalBroker | None = None

    def uri(self, site: str) -> str:
        """Return the address of a site's broker for its applications."""
        assert self.broker is not None
        return self.broker.spec.amqp_uri(BrokerUser(_ADMIN, self._password), site)

    async def begin(self, installation: RabbitMQInstallation) -> None:
        """Start the broker and all nodes; return when all links run."""
        names = self.shape.names
        amqp, stream, management, dist, epmd = free_ports(5)
        admin = BrokerUser(_ADMIN, self._password, ("administrator",))
        spec = BrokerSpec(
            *("bench", self._place / "broker", amqp, stream, management, dist, epmd),
            vhosts=("/", *names),
            users=(admin,),
            schedulers=SCHEDULERS,
            host=self._network.broker,
        )
        self.broker = LocalBroker(spec, installation)
        await self.broker.start(deadline_s=3 * START_WITHIN_S)
        self._network.reach_broker(amqp)
        self.file.write_text(yaml.safe_dump(self._written(amqp), sort_keys=False))
        mesh = load_mesh(self.file)
        self.state.mkdir(parents=True, exist_ok=True)
        credentials = load_or_make(self.state, mesh)
        write_private_brokers(
            self.state,
            {
                site: PrivateBroker(amqp, stream, management, host=spec.host, vhost=site)
                for site in names
            },
        )
        where = ManagementAddress(spec.management_url, "/", _ADMIN, self._password)
        async with ManagementApi(where) as api:
            for site in names:
                name, password = Names(MESH).admin_user(site), credentials.of(site).admin
                user = {"password": password, "tags": "administrator"}
                await api.put("users", name, body=user)
                rights = {"configure": ".*", "write": ".*", "read": ".*"}
                await api.put("permissions", site, name, body=rights)
        await self.run("apply")
        for first in range(0, len(names), _AT_ONCE):
            for site in names[first : first + _AT_ONCE]:
                await self.start_node(site)
            await asyncio.sleep(2.0)
        await self.ready()

    async def start_node(self, site: str, node: str = "") -> None:
        """Start the node of a site in the site's namespace."""
        number = self.shape.names.index(site)
        with (self._place / f"{site}.log").open("ab") as log:
            self.nodes[site] = await asyncio.create_subprocess_exec(
                *self._network.inside(number),
                *("setpriv", "--pdeathsig", "KILL", "--"),
                *(sys.executable, "-m", "isthmus", "relay", str(self.file)),
                *("--site", site, "--state", str(self.state)),
                stdout=log,
                stderr=log,
            )

    def _written(self, port: int) -> dict[str, Any]:
        """Return the mesh file."""
        shape = self.shape
        by_lines = f"{self._network.broker_by_lines}:{port}"
        links: list[dict[str, str]] = []
        for sender, receiver in shape.links():
            link = {"from": sender, "to": receiver, "via": by_lines}
            # A replayer is met at its broker; where both are, at the receiver's.
            if shape.kind == "group" and receiver not in shape.replayers:
                link["dial"] = "from"
            links.append(link)
        topology: Any = {"group": self._group(), "star": "custom"}.get(shape.kind, "complete")
        return {
            "mesh": MESH,
            "outage_window": "72h",
            "topology": topology,
            "batch_format": 2,
            "signing": "ed25519",
            "exchanges": [dict(exchange) for exchange in self.exchanges],
            "sites": {site: self._site(number) for number, site in enumerate(shape.names)},
            "links": links,
        }

    def _group(self) -> dict[str, Any]:
        key = self._place / "group.key"
        key.write_text(new_group_key())
        group = {
            "group": _GROUP,
            "key": f"file:{key}",
            "rate": f"{RATE // 1000}KB/s",
            "replayers": list(self.shape.replayers),
            "ttl": 1,
        }
        return {"multicast": group}

    def _site(self, number: int) -> Mapping[str, Any]:
        key = Ed25519PrivateKey.generate()
        file = self._place / f"{self.shape.names[number]}.pem"
        file.write_bytes(private_key_pem(key))
        told = {"public_key": public_key_text(key.public_key()), "private_key": f"file:{file}"}
        if self.shape.kind == "group":
            told["multicast"] = self._network.address(number)
        return told

    async def ready(self) -> None:
        """Wait until all nodes run, with all of their links, and are members of a group."""
        within_s = START_WITHIN_S + START_EACH_S * len(self.nodes)
        waiting = list(self.shape.names)

        async def all_run() -> bool:
            while waiting and await self._runs_all(waiting[0]):
                del waiting[0]
            return not waiting

        await until(all_run, "the nodes and all links run", within_s)

    async def _runs_all(self, site: str) -> bool:
        try:
            told = await self.told_by(site)
        except (OSError, ValueError, KeyError):
            return False
        own = told["sites"][site]
        states = [own["state"], *(link["state"] for link in told["links"])]
        is_away = self.shape.kind == "group" and own.get("group", {}).get("away", "?") != ""
        return not is_away and all(state in CARRIES for state in states)

    async def told_by(self, site: str) -> dict[str, Any]:
        """Return what a site's node says of itself. Raises OSError, ValueError and KeyError while
        there is none.
        """
        # The node's own port is on loopback, of which each namespace has one.
        place = NodePlace.of(site_folder(self.state, site))
        program = await asyncio.create_subprocess_exec(
            *self._network.inside(self.shape.names.index(site)),
            *(sys.executable, "-SEc", _FETCH, f"{place.url}/status"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        said, _ = await program.communicate()
        told: dict[str, Any] = json.loads(said)
        return told

    async def close(self) -> None:
        await super().close()
        if self.broker is not None:
            self.broker.kill()


@asynccontextmanager
async def running_mesh(
    installation: RabbitMQInstallation, folder: Path, network: SiteNetwork, shape: Shape
) -> AsyncIterator[MulticastMesh]:
    """Run a mesh of a shape until the block ends."""
    folder.mkdir()
    mesh = MulticastMesh(folder, network, shape)
    try:
        await mesh.begin(installation)
        yield mesh
    finally:
        await mesh.close()
