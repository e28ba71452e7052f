"""Fixtures of the clients of other protocols and libraries: one mesh for all their tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from isthmus.brokers.installation import RabbitMQInstallation
from tests.journeys.clients.clients_mesh import EXCHANGES, ClientsMesh
from tests.journeys.clients.java import compiled
from tests.journeys.shared_mesh import mesh_on
from tests.live_brokers import BrokerPool, own_vhost
from tests.protocol_broker import ProtocolBroker, protocol_broker


@pytest.fixture(scope="session")
def protocols(
    rabbitmq: RabbitMQInstallation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProtocolBroker]:
    with protocol_broker(rabbitmq, tmp_path_factory.mktemp("protocols")) as made:
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def clients(
    protocols: ProtocolBroker, broker_pool: BrokerPool, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ClientsMesh]:
    exchanges = [{"name": name} for name in EXCHANGES]
    exchanges += [{"name": "keyed", "keys": ["java.#"]}]
    async with AsyncExitStack() as made:
        vhosts = {site: await own_vhost(protocols.broker, site) for site in ("paris", "tokyo")}
        vhosts["lima"] = await made.enter_async_context(broker_pool.vhost("lima"))
        folder = tmp_path_factory.mktemp("clients")
        mesh = await made.enter_async_context(
            mesh_on(vhosts, folder, topology={"hub": "tokyo"}, exchanges=exchanges)
        )
        yield ClientsMesh(mesh, protocols)


@pytest.fixture(scope="session")
def java_classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the compiled Java programs beside these tests."""
    return compiled(tmp_path_factory.mktemp("java"))
