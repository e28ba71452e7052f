"""Children of `isthmus up` for a mesh file: private brokers, or the nodes of private clusters, the
node or the nodes of each site, and the servers that nodes of a site share, where the file names
none. Children that a changed file keeps stay the same objects.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from federation.brokers.credentials import load_or_make
from federation.mesh import Mesh
from isthmus.brokers.config import BrokerSpec
from isthmus.brokers.installation import RabbitMQInstallation, find_installation
from isthmus.brokers.local_brokers import Epmd, LocalBroker
from isthmus.brokers.private_brokers import plan_brokers
from isthmus.known.address_book import address_book
from isthmus.site_apply import apply_sites
from isthmus.up.private_servers import private_servers
from isthmus.up.resting import rests
from isthmus.up.supervised import (
    ANNOUNCED_PAGE,
    BrokerProcess,
    NodeProcess,
    PageProcess,
    ServerProcess,
)
from isthmus.up.supervisor import BROKER_POLICY, NODE_POLICY, SERVER_POLICY, ChildPlan
from relay.node.site_folder import ANNOUNCED, node_folder, site_folder

log = logging.getLogger(__name__)

_NOT_YET_UP = "is down or inaccessible"
"""Words of a broker that was just started about a log that it has, and is still opening."""
_LOOKS_AT_LOGS = 20
_LOOK_EVERY_S = 0.5

PAGE = "page"
"""Name and kind of the child that serves the page."""
PROGRAM = "isthmus"
"""Module whose command `relay` is a node."""


class SiteBrokers:
    """Private broker of one site, or the nodes of the site's cluster."""

    def __init__(self, site: str, mesh: Mesh, state: Path) -> None:
        self.mesh = mesh
        self.epmd = Epmd()
        self.nodes: dict[str, AppliedBroker] = {}
        self._site = site
        self._state = state

    async def apply(self) -> None:
        """Apply the mesh once all nodes run: a queue gets members among the nodes that run when
        declared, and earlier declarations persist.
        """
        if not all(node.is_ready for node in self.nodes.values()):
            return
        book = address_book(self.mesh, self._state)
        for _ in range(_LOOKS_AT_LOGS):
            (report,) = await apply_sites(book, [self._site], self._state)
            if not any(_NOT_YET_UP in item.detail for item in report.faults):
                break
            await asyncio.sleep(_LOOK_EVERY_S)
        if not report.ok:
            faults = "; ".join(f"{item.kind} {item.name}: {item.detail}" for item in report.faults)
            log.warning(
                "%s: not as the mesh file says: %s",
                self._site,
                faults,
                extra={"event": "broker-not-as-declared", "site": self._site},
            )


class AppliedBroker(BrokerProcess):
    """Private broker that counts as started once the mesh is applied; a cluster's node, once all
    nodes run.
    """

    def __init__(self, broker: LocalBroker, site: SiteBrokers) -> None:
        super().__init__(broker)
        self._site = site
        self._has_started = False

    @property
    def is_ready(self) -> bool:
        """True while the broker runs after a completed start."""
        return self._has_started and self.broker.is_running

    def take_up(self, spec: BrokerSpec) -> None:
        """Use a new specification from the next start; `apply` changes a running broker."""
        self.broker.spec = spec

    async def start(self) -> None:
        self._has_started = False
        await super().start()
        self._has_started = True
        await self._site.apply()


class MeshChildren:
    """Children of one mesh file in one state folder, with its page if `has_page`."""

    def __init__(
        self, file: Path, state: Path, rabbitmq: Path | None, *, has_page: bool = False
    ) -> None:
        self.file = file.absolute()
        self._state = state
        self._rabbitmq = rabbitmq
        self._installation: RabbitMQInstallation | None = None
        self._brokers: dict[str, SiteBrokers] = {}
        self._nodes: dict[SiteNodeName, NodeProcess] = {}
        self._servers: list[ServerProcess] = []
        self._page = self._page_process() if has_page else None

    def plans(self, mesh: Mesh) -> list[ChildPlan]:
        """Plan all children of the mesh but the nodes of sites that rest, brokers first; write the
        addresses of new brokers and servers.

        Raises LocalBrokerError if RabbitMQ is needed and missing, PartsMissing if ZooKeeper and
        Cassandra are, CredentialsError, AddressError, OSError.
        """
        self._state.mkdir(parents=True, exist_ok=True)
        shares = any(
            s.nodes is not None and s.nodes.has_private_servers for s in mesh.sites.values()
        )
        if shares and not self._servers:
            self._servers = private_servers(self._state)
        if self._installation is None and any(s.broker is None for s in mesh.sites.values()):
            self._installation = find_installation(self._rabbitmq)
        specs = plan_brokers(mesh, self._state, load_or_make(self._state, mesh))
        brokers = {site: self._of_site(site, mesh, some) for site, some in specs.items()}
        running = [site for site in mesh.sites if not rests(self._state, site)]
        nodes = {one: self._node(one) for site in running for one in _nodes_of(mesh, site)}
        self._brokers, self._nodes = brokers, nodes
        return [
            *(ChildPlan(server, SERVER_POLICY) for server in self._servers if shares),
            *(plan for of_site in brokers.values() for plan in _broker_plans(of_site)),
            *(
                ChildPlan(
                    node,
                    NODE_POLICY,
                    ("broker", specs[one.site][-1].name) if one.site in specs else None,
                )
                for one, node in nodes.items()
            ),
            *([ChildPlan(self._page, NODE_POLICY)] if self._page is not None else ()),
        ]

    def _page_process(self) -> PageProcess:
        command = [sys.executable, "-m", PROGRAM, "page", str(self.file)]
        command += ["--state", str(self._state.absolute())]
        log_file = self._state / "logs" / "page.log"
        return PageProcess(PAGE, command, log_file, self._state / ANNOUNCED_PAGE)

    def _of_site(self, site: str, mesh: Mesh, specs: Sequence[BrokerSpec]) -> SiteBrokers:
        of_site = self._brokers.get(site) or SiteBrokers(site, mesh, self._state)
        of_site.mesh = mesh
        of_site.nodes = {spec.name: self._broker(of_site, spec) for spec in specs}
        return of_site

    def _broker(self, of_site: SiteBrokers, spec: BrokerSpec) -> AppliedBroker:
        known = of_site.nodes.get(spec.name)
        if known is not None:
            known.take_up(spec)
            return known
        assert self._installation is not None
        broker = LocalBroker(spec, self._installation, die_with_parent=True, epmd=of_site.epmd)
        return AppliedBroker(broker, of_site)

    def _node(self, one: SiteNodeName) -> NodeProcess:
        if one in self._nodes:
            return self._nodes[one]
        command = [sys.executable, "-m", PROGRAM, "relay", str(self.file)]
        command += ["--site", one.site, "--state", str(self._state.absolute())]
        name, folder = one.site, site_folder(self._state, one.site)
        if one.node:
            command += ["--node", one.node]
            name, folder = f"{one.site}.{one.node}", node_folder(self._state, one.site, one.node)
        log_file = self._state / "logs" / f"{name}.log"
        return NodeProcess(name, command, log_file, folder / ANNOUNCED)


class SiteNodeName(NamedTuple):
    """Site, and the name of one of its nodes; empty for the only node of a site."""

    site: str
    node: str


def _nodes_of(mesh: Mesh, site: str) -> list[SiteNodeName]:
    """Return the nodes of a site that run here: all that have names, or one by this machine's."""
    group = mesh.sites[site].nodes
    if group is None:
        return [SiteNodeName(site, "")]
    return [SiteNodeName(site, node) for node in group.names or (socket.gethostname(),)]


def _broker_plans(of_site: SiteBrokers) -> Iterable[ChildPlan]:
    founder, *others = of_site.nodes.values()
    yield ChildPlan(founder, BROKER_POLICY)
    # A cluster that was there before needs all nodes at once: the founder may wait for any.
    after = None if founder.broker.has_data else ("broker", founder.name)
    for node in others:
        yield ChildPlan(node, BROKER_POLICY, after)
