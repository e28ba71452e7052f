"""What `isthmus up` looks after for a mesh file: a private broker for each site that names none,
and a node a site. Made anew for a changed file, children that stay are the same ones.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from federation.brokers.credentials import load_or_make
from federation.mesh import Mesh
from isthmus.address_book import address_book
from isthmus.broker_config import BrokerSpec
from isthmus.commands.apply import apply_sites
from isthmus.commands.relay import site_folder
from isthmus.local_brokers import LocalBroker
from isthmus.private_brokers import plan_brokers
from isthmus.rabbitmq_install import RabbitMQInstallation, find_installation
from isthmus.supervised import BrokerProcess, NodeProcess
from isthmus.supervisor import BROKER_POLICY, NODE_POLICY, Plan

log = logging.getLogger(__name__)

PROGRAM = "isthmus"
"""The module whose command `relay` is a node."""


class AppliedBroker(BrokerProcess):
    """A private broker that has what the mesh needs whenever it is said to be started."""

    def __init__(self, broker: LocalBroker, mesh: Mesh, state: Path) -> None:
        super().__init__(broker)
        self._mesh = mesh
        self._state = state

    def take_up(self, mesh: Mesh, spec: BrokerSpec) -> None:
        """From the next start on it is this mesh's. While it runs, `apply` makes it so."""
        self._mesh = mesh
        self.broker.spec = spec

    async def start(self) -> None:
        await super().start()
        book = address_book(self._mesh, self._state)
        (report,) = await apply_sites(book, [self.name], self._state)
        if not report.ok:
            told = "; ".join(f"{item.kind} {item.name}: {item.detail}" for item in report.faults)
            log.warning("%s: not as the mesh file says: %s", self.name, told)


class MeshChildren:
    """The children of one mesh file in one state folder."""

    def __init__(self, file: Path, state: Path, rabbitmq: Path | None) -> None:
        self.file = file.absolute()
        self._state = state
        self._rabbitmq = rabbitmq
        self._installation: RabbitMQInstallation | None = None
        self._brokers: dict[str, AppliedBroker] = {}
        self._nodes: dict[str, NodeProcess] = {}

    def plans(self, mesh: Mesh) -> list[Plan]:
        """All children of the mesh, brokers first; writes down where new brokers will listen.

        Raises LocalBrokerError if RabbitMQ is needed and not there, CredentialsError, OSError.
        """
        self._state.mkdir(parents=True, exist_ok=True)
        if self._installation is None and any(s.broker is None for s in mesh.sites.values()):
            self._installation = find_installation(self._rabbitmq)
        specs = plan_brokers(mesh, self._state, load_or_make(self._state, mesh))
        brokers = {site: self._broker(mesh, spec) for site, spec in specs.items()}
        nodes = {site: self._node(site) for site in mesh.sites}
        self._brokers, self._nodes = brokers, nodes
        return [
            *(Plan(broker, BROKER_POLICY) for broker in brokers.values()),
            *(
                Plan(node, NODE_POLICY, ("broker", site) if site in brokers else None)
                for site, node in nodes.items()
            ),
        ]

    def _broker(self, mesh: Mesh, spec: BrokerSpec) -> AppliedBroker:
        known = self._brokers.get(spec.name)
        if known is not None:
            known.take_up(mesh, spec)
            return known
        assert self._installation is not None
        broker = LocalBroker(spec, self._installation, die_with_parent=True)
        return AppliedBroker(broker, mesh, self._state)

    def _node(self, site: str) -> NodeProcess:
        if site in self._nodes:
            return self._nodes[site]
        command = [sys.executable, "-m", PROGRAM, "relay", str(self.file)]
        command += ["--site", site, "--state", str(self._state.absolute())]
        log_file = self._state / "logs" / f"{site}.log"
        return NodeProcess(site, command, log_file, site_folder(self._state, site) / "node.json")
