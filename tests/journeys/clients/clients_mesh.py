"""A mesh for clients of other protocols and libraries, which all their tests share."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import pytest

from tests.journeys.live_mesh import LiveMesh
from tests.live_brokers import Vhost
from tests.protocol_broker import ProtocolBroker

CLIENTS = pytest.mark.asyncio(loop_scope="session")
"""Mark of a module whose tests use the fixture `clients`."""
EXCHANGES = (
    *("sensors", "stomp", "amqp10", "java", "dotnet", "spring"),
    *("errors", "failures", "requests", "replies"),
)


@dataclass(frozen=True, slots=True)
class ClientsMesh:
    """A mesh of paris and tokyo on one broker of all protocols, and of lima on another broker."""

    mesh: LiveMesh
    protocols: ProtocolBroker

    def login(self, site: str) -> tuple[str, str]:
        """User and password of the site's applications."""
        uri = urlsplit(self.mesh.uri(site))
        return unquote(uri.username or ""), unquote(uri.password or "")

    def vhost(self, site: str) -> Vhost:
        return self.mesh.vhosts[site]

    @property
    def release(self) -> tuple[int, ...]:
        """Release of RabbitMQ."""
        return self.protocols.broker.installation.release
