"""Conventions of Spring AMQP, and requests with replies, across sites (docs/clients.md).

Celery's are in `tests/journeys/test_ordinary_clients.py`.
"""

from __future__ import annotations

from dataclasses import replace

import aio_pika

from relay.bulk_amqp import ChannelClosed
from relay.bulk_amqp.content_header import CLUSTER_ID, USER_ID, rewrite
from relay.bulk_amqp.field_table import entry, long_string
from tests.journeys.application import Letter, at, letter
from tests.journeys.clients.clients_mesh import CLIENTS, ClientsMesh
from tests.journeys.clients.described import own_headers
from tests.message_properties import properties
from tests.waiting import until

pytestmark = CLIENTS
PAIR = ("paris", "tokyo")
STACK = b"org.example.Failed: no such order\n\tat org.example.Listener.on(Listener.java:12)\n" * 200


def text_headers(**values: bytes) -> bytes:
    return b"".join(entry(name.encode(), long_string(value)) for name, value in values.items())


def converted(body: bytes, message_id: bytes = b"", **headers: bytes) -> Letter:
    """A message as Jackson2JsonMessageConverter and RabbitTemplate make it."""
    written = properties(
        text_headers(__TypeId__=b"org.example.Order", **headers),
        content_type=b"application/json",
        content_encoding=b"UTF-8",
        delivery_mode=2,
        priority=0,
        **({"message_id": message_id} if message_id else {}),
    )
    return Letter(body, b"order.new", written)


async def test_spring_conventions_arrive_as_they_were_sent(clients: ClientsMesh) -> None:
    async with at(clients.mesh, "paris", "tokyo") as (paris, tokyo):
        inbox = await tokyo.listen("spring", queue="inbox.spring")
        sent = converted(
            b'{"number": 1}',
            b"00112233-4455-6677-8899-aabbccddee30",
            spring_listener_return_correlation=b"c1f0e0a0-0000-4000-8000-000000000001",
            spring_returned_message_correlation=b"7",
        )
        await paris.post("spring", sent)
        (got,) = await inbox.has(1)
        assert (got.body, got.as_sent) == (sent.body, sent.properties)
        # Without an ID, as Spring has it by default, nobody knows a repetition.
        await paris.post("spring", *[converted(b"2")] * 2)
        assert [m.body for m in (await inbox.has(3))[1:]] == [b"2", b"2"]


async def test_what_a_listener_dead_letters_or_republishes_travels_in_another_exchange(
    clients: ClientsMesh,
) -> None:
    async with at(clients.mesh, "paris", "tokyo") as (paris, tokyo):
        await tokyo.declare("spring.failing", "spring", "fails", x_dead_letter_exchange="errors")
        inbox = await tokyo.listen("spring", "fails", queue="inbox.spring.fails")
        errors = await paris.listen("errors", queue="inbox.spring.errors")
        failures = await paris.listen("failures", queue="inbox.spring.failures")
        await paris.post(
            "spring",
            replace(converted(b"1", b"00112233-4455-6677-8899-aabbccddee31"), key=b"fails"),
        )
        (received,) = await inbox.has(1)
        await tokyo.reject_all("spring.failing")
        (dead,) = await errors.has(1)
        (death,) = own_headers(dead)["x-death"]
        assert (death["queue"], death["exchange"]) == ("spring.failing", "spring")
        assert own_headers(dead)["__TypeId__"] == "org.example.Order"
        assert dead.path == ("tokyo", "paris")

        # As RepublishMessageRecoverer does, which leaves out the user_id that it received.
        more = {
            "x-exception-stacktrace": STACK,
            "x-exception-message": b"no such order",
            "x-original-exchange": b"spring",
            "x-original-routingKey": b"fails",
        }
        bare = rewrite(received.properties, {USER_ID: None, CLUSTER_ID: None}, text_headers(**more))
        await tokyo.post("failures", Letter(received.body, b"fails", bare))
        (again,) = await failures.has(1)
        assert own_headers(again) == {
            "__TypeId__": "org.example.Order",
            **{name: value.decode() for name, value in more.items()},
        }
        assert again.path == ("tokyo", "paris")


async def test_a_message_published_again_with_the_relays_user_id_is_refused(
    clients: ClientsMesh,
) -> None:
    async with at(clients.mesh, "paris", "tokyo") as (paris, tokyo):
        inbox = await tokyo.listen("spring", "again", queue="inbox.spring.again")
        await paris.post("spring", letter(b"1", key=b"again"))
        (got,) = await inbox.has(1)
        await tokyo.post("errors", Letter(got.body, b"again", got.properties))
        assert isinstance(tokyo.closed_because, ChannelClosed)
        assert "user_id" in str(tokyo.closed_because)


async def test_a_direct_reply_to_another_site_is_lost_and_one_by_a_mesh_exchange_arrives(
    clients: ClientsMesh,
) -> None:
    mesh = clients.mesh
    async with (
        await aio_pika.connect(mesh.uri("paris")) as asking,
        await aio_pika.connect(mesh.uri("lima")) as answering,
    ):
        lima = await answering.channel()
        queue = await lima.declare_queue("requests.lima")
        await queue.bind("requests", "#")

        paris = await asking.channel()
        answers: list[aio_pika.abc.AbstractIncomingMessage] = []

        async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            answers.append(message)

        direct = await paris.get_queue("amq.rabbitmq.reply-to", ensure=False)
        await direct.consume(take, no_ack=True)
        own = await paris.declare_queue("answers.of.paris")
        await own.bind("replies", "answers.of.paris")
        await own.consume(take, no_ack=True)
        requests = await paris.get_exchange("requests", ensure=False)
        for reply_to in ("amq.rabbitmq.reply-to", "answers.of.paris"):
            asked = aio_pika.Message(b"ask", reply_to=reply_to, correlation_id=f"c {reply_to}")
            await requests.publish(asked, "ask")

        first, second = [
            await until(lambda: queue.get(fail=False), "a request at lima", 60) for _ in range(2)
        ]
        assert (first.reply_to or "").startswith("amq.rabbitmq.reply-to.")
        assert (second.reply_to, second.correlation_id) == (
            "answers.of.paris",
            "c answers.of.paris",
        )
        async with at(mesh, "lima") as (other,):
            # The token means nothing to another broker: 3.10 ends the connection that uses it.
            await other.post("", Letter(b"answer", (first.reply_to or "").encode()))
            is_old = mesh.vhosts["lima"].broker.installation.release < (4, 0)
            assert (other.closed_because is not None) == is_old
        replies = await lima.get_exchange("replies", ensure=False)
        reply = aio_pika.Message(b"answer", correlation_id=second.correlation_id)
        await replies.publish(reply, second.reply_to or "")
        await until(lambda: answers, "the answer at paris", 60)
        assert [(one.body, one.correlation_id) for one in answers] == [
            (b"answer", "c answers.of.paris")
        ]
