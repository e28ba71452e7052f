"""MQTT: messages of a client at one site, as others get them at another (docs/clients.md)."""

from __future__ import annotations

import pytest

from tests.journeys.application import Letter, at, letter
from tests.journeys.clients.clients_mesh import CLIENTS, ClientsMesh
from tests.journeys.clients.described import described, own_headers
from tests.journeys.clients.mqtt import mqtt_client
from tests.journeys.clients.packages import client_package

pytestmark = CLIENTS
PAIR = ("paris", "tokyo")
V5 = 5


async def bind(clients: ClientsMesh, site: str, key: str) -> None:
    """Let MQTT's exchange and the mesh's lead into each other, as an operator does once."""
    for source, destination in (("amq.topic", "sensors"), ("sensors", "amq.topic")):
        await clients.vhost(site).api(
            "POST", f"/bindings/{{vhost}}/e/{source}/e/{destination}", {"routing_key": key}
        )


async def test_mqtt_messages_reach_amqp_and_mqtt_consumers_at_another_site(
    clients: ClientsMesh,
) -> None:
    for site in PAIR:
        await bind(clients, site, "one.#")
    async with (
        at(clients.mesh, "tokyo") as (tokyo,),
        mqtt_client(clients, "paris") as publisher,
        mqtt_client(clients, "paris") as neighbour,
        mqtt_client(clients, "tokyo") as subscriber,
    ):
        inbox = await tokyo.listen("sensors", "one.#", queue="inbox.mqtt.one")
        await neighbour.subscribe("one/hall/temperature")
        await subscriber.subscribe("one/#")
        await publisher.publish("one/hall 1.2/temperature", b"21.5", 1)
        await publisher.publish("one/hall/temperature", b"\x00\xff", 0)
        await publisher.publish("one/hall/last", b"", 1)
        got = await inbox.has(3)
        assert [m.key for m in got] == [
            b"one.hall 1.2.temperature",
            b"one.hall.temperature",
            b"one.hall.last",
        ]
        assert [m.body for m in got] == [b"21.5", b"\x00\xff", b""]
        assert [described(m) for m in got] == [{"delivery_mode": mode} for mode in (2, 1, 2)]
        if clients.release < (4, 0):
            assert [own_headers(m) for m in got] == [
                {"x-mqtt-publish-qos": qos, "x-mqtt-dup": False} for qos in (1, 0, 1)
            ]
        else:
            assert [own_headers(m) for m in got] == [{}] * 3
        assert all(m.path == PAIR for m in got)
        heard = await subscriber.has(3)
        # A slash and a full stop are the same in a key, which MQTT's topics are made from again.
        assert [(one.topic, one.payload, one.qos) for one in heard] == [
            ("one/hall 1/2/temperature", b"21.5", 1),
            ("one/hall/temperature", b"\x00\xff", 0),
            ("one/hall/last", b"", 1),
        ]
        # The publisher's own site has each once, though its exchanges lead into each other.
        assert [one.payload for one in await neighbour.has(1)] == [b"\x00\xff"]


async def test_an_mqtt_subscriber_gets_what_amqp_clients_publish_at_another_site(
    clients: ClientsMesh,
) -> None:
    await bind(clients, "tokyo", "two.#")
    async with at(clients.mesh, "paris") as (paris,), mqtt_client(clients, "tokyo") as subscriber:
        await subscriber.subscribe("two/#")
        await paris.post(
            "sensors",
            letter(b"persistent", key=b"two.a.b", why=b"late"),
            Letter(b"transient", b"two.c"),
        )
        heard = await subscriber.has(2)
        assert [(one.topic, one.payload) for one in heard] == [
            ("two/a/b", b"persistent"),
            ("two/c", b"transient"),
        ]
        assert [one.qos for one in heard] == ([1, 1] if clients.release < (4, 0) else [1, 0])


async def test_a_retained_mqtt_message_is_kept_at_its_own_site_alone(clients: ClientsMesh) -> None:
    for site in PAIR:
        await bind(clients, site, "kept.#")
    async with (
        mqtt_client(clients, "paris") as publisher,
        mqtt_client(clients, "tokyo") as early,
    ):
        await early.subscribe("kept/#")
        await publisher.publish("kept/state", b"on", 1, retain=True)
        assert [one.retain for one in await early.has(1)] == [False]
        async with (
            mqtt_client(clients, "paris") as at_paris,
            mqtt_client(clients, "tokyo") as at_tokyo,
        ):
            await at_paris.subscribe("kept/state")
            assert [(one.payload, one.retain) for one in await at_paris.has(1)] == [(b"on", True)]
            await at_tokyo.subscribe("kept/state")
            await publisher.publish("kept/state", b"next", 1)
            assert [one.payload for one in await at_tokyo.has(1)] == [b"next"]


async def test_an_mqtt_message_that_its_client_sends_twice_arrives_twice(
    clients: ClientsMesh,
) -> None:
    await bind(clients, "paris", "twice.#")
    async with at(clients.mesh, "tokyo") as (tokyo,), mqtt_client(clients, "paris") as publisher:
        inbox = await tokyo.listen("sensors", "twice.#", queue="inbox.mqtt.twice")
        for _ in range(2):
            await publisher.publish("twice/a", b"the same", 1)
        await publisher.publish("twice/a", b"last", 1)
        assert [m.body for m in await inbox.has(3)] == [b"the same", b"the same", b"last"]


async def test_an_mqtt_will_travels(clients: ClientsMesh) -> None:
    await bind(clients, "paris", "will.#")
    async with (
        at(clients.mesh, "tokyo") as (tokyo,),
        mqtt_client(clients, "paris", will=("will/meter", b"gone")) as publisher,
    ):
        inbox = await tokyo.listen("sensors", "will.#", queue="inbox.mqtt.will")
        publisher.break_off()
        (got,) = await inbox.has(1)
        assert (got.key, got.body) == (b"will.meter", b"gone")


async def test_mqtt_5_has_its_properties_at_another_site_from_rabbitmq_4_on(
    clients: ClientsMesh,
) -> None:
    if clients.release < (4, 0):
        with pytest.raises(ConnectionRefusedError):
            async with mqtt_client(clients, "paris", version=V5):
                pass
        return
    for site in PAIR:
        await bind(clients, site, "five.#")
    properties = client_package("paho.mqtt.properties")
    sent = properties.Properties(client_package("paho.mqtt.packettypes").PacketTypes.PUBLISH)
    sent.ContentType = "application/json"
    sent.CorrelationData = b"request 12"
    sent.ResponseTopic = "five/answers"
    sent.MessageExpiryInterval = 86_400
    sent.PayloadFormatIndicator = 1
    sent.UserProperty = [("unit", "\u00b0C"), ("x-trace", "1")]
    async with (
        at(clients.mesh, "tokyo") as (tokyo,),
        mqtt_client(clients, "paris", version=V5) as publisher,
        mqtt_client(clients, "tokyo", version=V5) as subscriber,
    ):
        inbox = await tokyo.listen("sensors", "five.#", queue="inbox.mqtt.five")
        await subscriber.subscribe("five/#")
        await publisher.publish("five/a", b"{}", 1, properties=sent)
        (got,) = await inbox.has(1)
        whole = described(got)
        assert whole.pop("timestamp") > 1_700_000_000
        assert 86_400_000 - 180_000 < int(whole.pop("expiration")) <= 86_400_000
        assert whole == {
            "content_type": b"application/json",
            "delivery_mode": 2,
            "correlation_id": b"request 12",
        }
        assert own_headers(got) == {
            "unit": "\u00b0C",
            "x-trace": "1",
            "x-reply-to-topic": "five.answers",
        }
        (heard,) = await subscriber.has(1)
        assert heard.properties.ContentType == "application/json"
        assert heard.properties.CorrelationData == b"request 12"
        assert heard.properties.ResponseTopic == "five/answers"
        for lost in ("MessageExpiryInterval", "PayloadFormatIndicator"):
            assert not hasattr(heard.properties, lost)
        users = dict(heard.properties.UserProperty)
        assert {"unit": "\u00b0C", "x-trace": "1"}.items() <= users.items()
        assert users["x-mesh-path"] == "paris,tokyo"
