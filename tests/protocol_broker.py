"""A broker that also speaks MQTT, STOMP and AMQP 1.0, for tests of clients of these protocols."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from isthmus.brokers.config import PLUGINS
from isthmus.brokers.installation import RabbitMQInstallation
from isthmus.brokers.local_brokers import LocalBroker
from isthmus.brokers.ports import free_ports
from tests.live_brokers import START_WITHIN_S, discard, local_broker

PROTOCOLS = ("rabbitmq_amqp1_0", "rabbitmq_mqtt", "rabbitmq_stomp")
"""Plugins; from 4.0 on that of AMQP 1.0 does nothing, since the broker speaks it itself."""
_CONFIGURATION = """\
mqtt.listeners.tcp.1 = 127.0.0.1:{mqtt}
mqtt.exchange = {exchange}
stomp.listeners.tcp.1 = 127.0.0.1:{stomp}
"""


@dataclass(frozen=True, slots=True)
class ProtocolBroker:
    """A broker and its further ports; AMQP 1.0 is at the port of AMQP 0-9-1."""

    broker: LocalBroker
    mqtt: int
    stomp: int


@contextmanager
def protocol_broker(
    installation: RabbitMQInstallation, folder: Path, *, mqtt_exchange: str = "amq.topic"
) -> Iterator[ProtocolBroker]:
    """Run such a broker within the block."""
    plain = local_broker(installation, folder, "protocols")
    spec = replace(plain.spec, plugins=(*PLUGINS, *PROTOCOLS))
    mqtt, stomp = free_ports(2)
    made = ProtocolBroker(LocalBroker(spec, installation), mqtt, stomp)
    (folder / "conf.d").mkdir(parents=True)
    (folder / "conf.d" / "10-protocols.conf").write_text(
        _CONFIGURATION.format(mqtt=mqtt, stomp=stomp, exchange=mqtt_exchange)
    )
    try:
        asyncio.run(made.broker.start(deadline_s=START_WITHIN_S))
        yield made
    finally:
        discard(made.broker)
