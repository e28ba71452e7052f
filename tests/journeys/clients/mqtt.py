"""An MQTT client at one site: Eclipse Paho's, which runs in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from tests.journeys.clients.clients_mesh import ClientsMesh
from tests.journeys.clients.packages import client_package
from tests.waiting import until

WITHIN_S = 20.0


@dataclass(slots=True)
class MqttClient:
    """A connected client and all messages that it got."""

    paho: Any
    got: list[Any] = field(default_factory=list)
    answered: set[int] = field(default_factory=set)
    """IDs of subscriptions that the broker has answered."""

    async def subscribe(self, topic: str, qos: int = 1) -> None:
        _, number = self.paho.subscribe(topic, qos)
        await until(lambda: number in self.answered, f"subscribed to {topic}", WITHIN_S)

    async def publish(self, topic: str, body: bytes, qos: int = 1, **how: Any) -> None:
        """Publish; of QoS 1 wait for the broker's acknowledgement."""
        sent = self.paho.publish(topic, body, qos, **how)
        await until(sent.is_published, f"published to {topic}", WITHIN_S)

    def break_off(self) -> None:
        """End the connection without the word that ends it in order, as a power cut does."""
        self.paho.socket().shutdown(socket.SHUT_RDWR)

    async def has(self, count: int) -> list[Any]:
        """Wait for so many messages; more is an error."""
        await until(
            lambda: len(self.got) >= count,
            lambda: f"{count} messages, not {[(one.topic, one.payload) for one in self.got]}",
            WITHIN_S,
        )
        assert len(self.got) == count
        return self.got


@contextlib.asynccontextmanager
async def mqtt_client(
    clients: ClientsMesh, site: str, *, version: int = 4, will: tuple[str, bytes] | None = None
) -> AsyncIterator[MqttClient]:
    """A client at the site, by MQTT 3.1.1 unless `version` is 5. Raises ConnectionRefusedError with
    the broker's reason.
    """
    package = client_package("paho.mqtt.client")
    name = f"test-{secrets.token_hex(4)}"
    paho = package.Client(package.CallbackAPIVersion.VERSION2, name, protocol=version)
    if will is not None:
        paho.will_set(*will, qos=1)
    made = MqttClient(paho)
    outcome: list[Any] = []
    paho.on_connect = lambda client, data, flags, reason, properties: outcome.append(reason)
    paho.on_connect_fail = lambda client, data: outcome.append("no connection")
    paho.on_disconnect = lambda client, data, flags, reason, properties: outcome.append(reason)
    paho.on_subscribe = lambda client, data, number, *_: made.answered.add(number)
    paho.on_message = lambda client, data, message: made.got.append(message)
    user, password = clients.login(site)
    paho.username_pw_set(f"{clients.vhost(site).name}:{user}", password)
    paho.connect_async("127.0.0.1", clients.protocols.mqtt)
    paho.loop_start()
    try:
        await until(lambda: outcome, f"connected at {site}", WITHIN_S)
        if outcome[0] != "Success":
            raise ConnectionRefusedError(str(outcome[0]))
        yield made
    finally:
        paho.disconnect()
        await asyncio.to_thread(paho.loop_stop)
