"""MQTT into a mesh exchange that the broker's setting names (docs/clients.md)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.brokers.installation import RabbitMQInstallation
from tests.journeys.clients.clients_mesh import ClientsMesh
from tests.journeys.clients.mqtt import mqtt_client
from tests.journeys.shared_mesh import mesh_on
from tests.live_brokers import own_vhost
from tests.protocol_broker import ProtocolBroker, protocol_broker

PAIR = ("paris", "tokyo")


@pytest.fixture
def protocols(rabbitmq: RabbitMQInstallation, tmp_path: Path) -> Iterator[ProtocolBroker]:
    with protocol_broker(rabbitmq, tmp_path / "broker", mqtt_exchange="sensors") as made:
        yield made


@pytest.mark.slow
async def test_mqtts_own_exchange_may_be_the_meshs(
    protocols: ProtocolBroker, tmp_path: Path
) -> None:
    vhosts = {site: await own_vhost(protocols.broker, site) for site in PAIR}
    folder = tmp_path / "mesh"
    folder.mkdir()
    exchanges = [{"name": "sensors"}]
    async with mesh_on(vhosts, folder, topology="complete", exchanges=exchanges) as mesh:
        clients = ClientsMesh(mesh, protocols)
        async with (
            mqtt_client(clients, "paris") as publisher,
            mqtt_client(clients, "tokyo") as subscriber,
        ):
            await subscriber.subscribe("hall/#")
            await publisher.publish("hall/a", b"21.5")
            assert [(one.topic, one.payload) for one in await subscriber.has(1)] == [
                ("hall/a", b"21.5")
            ]
