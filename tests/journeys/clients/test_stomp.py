"""STOMP: messages of a client at one site, as others get them at another (docs/clients.md)."""

from __future__ import annotations

from tests.journeys.application import at, letter
from tests.journeys.clients.clients_mesh import CLIENTS, ClientsMesh
from tests.journeys.clients.described import described, own_headers
from tests.journeys.clients.stomp_client import stomp_client

pytestmark = CLIENTS
PAIR = ("paris", "tokyo")
ID = "00112233-4455-6677-8899-aabbccddee20"


async def test_stomp_messages_reach_amqp_and_stomp_consumers_at_another_site(
    clients: ClientsMesh,
) -> None:
    async with (
        at(clients.mesh, "tokyo") as (tokyo,),
        stomp_client(clients, "paris") as sender,
        stomp_client(clients, "tokyo") as subscriber,
    ):
        inbox = await tokyo.listen("stomp", "one.#", queue="inbox.stomp.one")
        await subscriber.subscribe("/exchange/stomp/one.#")
        await sender.send(
            "/exchange/stomp/one.all",
            b'{"a": 1}',
            persistent="true",
            content_type="application/json",
            content_encoding="gzip",
            correlation_id="request 12",
            reply_to="/queue/answers",
            priority="7",
            expiration="86400000",
            amqp_message_id=ID,
            timestamp="1700000000",
            type="order",
            app_id="shop",
            why="late: \u6771\u4eac\nnew line",
        )
        await sender.send("/exchange/stomp/one.bare", b"\x00\xff")
        got = await inbox.has(2)
        assert [(m.key, m.body) for m in got] == [
            (b"one.all", b'{"a": 1}'),
            (b"one.bare", b"\x00\xff"),
        ]
        whole = described(got[0])
        assert 86_400_000 - 180_000 < int(whole.pop("expiration")) <= 86_400_000
        assert whole == {
            "content_type": b"application/json",
            "content_encoding": b"gzip",
            "delivery_mode": 2,
            "priority": 7,
            "correlation_id": b"request 12",
            "reply_to": b"/queue/answers",
            "message_id": ID.encode(),
            "timestamp": 1_700_000_000,
            "type": b"order",
            "app_id": b"shop",
        }
        assert own_headers(got[0])["why"] == "late: \u6771\u4eac\nnew line"
        assert "why" not in own_headers(got[1])
        assert described(got[1]) == {}
        heard = await subscriber.has(2)
        assert [one.body for one in heard] == [b'{"a": 1}', b"\x00\xff"]
        first = heard[0].headers
        assert first["why"] == "late: \u6771\u4eac\nnew line"
        assert first["correlation-id"] == "request 12"
        assert first["amqp-message-id"] == ID
        assert first["x-mesh-path"] == "paris,tokyo"
        assert first["destination"] == "/exchange/stomp/one.all"
        assert all(m.path == PAIR for m in got)


async def test_a_stomp_subscriber_gets_what_amqp_clients_publish_at_another_site(
    clients: ClientsMesh,
) -> None:
    async with (
        at(clients.mesh, *PAIR) as (paris, tokyo),
        stomp_client(clients, "tokyo") as subscriber,
        stomp_client(clients, "tokyo") as worker,
    ):
        await tokyo.declare("work.stomp", "stomp", "two.#")
        await worker.subscribe("/amq/queue/work.stomp")
        await subscriber.subscribe("/exchange/stomp/two.#")
        await paris.post("stomp", letter(b"\x00\xff", ID, key=b"two.a", why=b"late"))
        (heard,) = await subscriber.has(1)
        assert (heard.body, heard.headers["why"]) == (b"\x00\xff", "late")
        assert heard.headers["persistent"] == "true"
        assert [one.body for one in await worker.has(1)] == [b"\x00\xff"]


async def test_a_reply_to_a_temporary_stomp_queue_stays_at_the_site_of_the_request(
    clients: ClientsMesh,
) -> None:
    async with (
        at(clients.mesh, "tokyo") as (tokyo,),
        stomp_client(clients, "paris") as sender,
    ):
        inbox = await tokyo.listen("stomp", "three.#", queue="inbox.stomp.three")
        await sender.send("/exchange/stomp/three.a", b"ask", reply_to="/temp-queue/answers")
        (got,) = await inbox.has(1)
        queue = described(got)["reply_to"].decode().removeprefix("/reply-queue/")
        found = {site: await clients.vhost(site).api("GET", "/queues/{vhost}") for site in PAIR}
        assert queue in {one["name"] for one in found["paris"]}
        assert queue not in {one["name"] for one in found["tokyo"]}
