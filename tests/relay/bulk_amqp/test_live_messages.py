"""Messages over a real broker: every byte, every tag, every property."""

from __future__ import annotations

import asyncio
import random

import pytest

from relay.bulk_amqp import MalformedProperties, Message, PublishOutcome, connect, content_header
from tests.conftest import Eventually
from tests.live_brokers import Vhost
from tests.relay.bulk_amqp.live_channels import (
    PLAIN,
    QUORUM,
    Connect,
    Inbox,
    every_property,
    publish_all,
    started_publisher,
)


@pytest.mark.parametrize("arguments", [{}, QUORUM], ids=["classic", "quorum"])
async def test_ten_thousand_messages_come_once_in_order_and_byte_for_byte(
    connected: Connect, eventually: Eventually, arguments: dict[str, str]
) -> None:
    channel = await (await connected()).channel()
    await channel.declare_exchange("orders", "topic")
    await channel.declare_queue("inbox", durable=True, arguments=arguments)
    await channel.bind_queue("inbox", "orders", "#")
    inbox = Inbox(channel, "inbox")
    await inbox.consumer.start(prefetch=2000)
    draw = random.Random(7)
    messages: list[Message] = [
        (
            "orders",
            b"key.%d" % (n % 3000),
            content_header.rewrite(PLAIN, {content_header.MESSAGE_ID: b"m%d" % n}),
            draw.randbytes(draw.choice([0, 1, 100, 1024, 5000])),
        )
        for n in range(10_000)
    ]
    outcomes = await publish_all(await started_publisher(await connected()), messages)
    assert all(outcome.all_routed for outcome in outcomes)
    await eventually(lambda: len(inbox.got) >= 10_000, lambda: f"{len(inbox.got)}", deadline_s=30)
    received = [
        (exchange, key, content_header.without_headers(block, (), (b"x-delivery-count",)), body)
        for exchange, key, block, body in inbox.messages()
    ]
    assert received == messages
    assert [delivery[0] for delivery in inbox.got] == list(range(1, 10_001))
    assert inbox.reads < 10_000
    assert (await channel.declare_queue("inbox", passive=True)).message_count == 0
    await channel.close()
    left = await (await connected()).channel()
    assert (await left.declare_queue("inbox", passive=True)).message_count == 0


async def test_a_body_of_15_mib_and_an_empty_one_arrive_whole(
    connected: Connect, eventually: Eventually
) -> None:
    channel = await (await connected()).channel()
    await channel.declare_queue("big")
    inbox = Inbox(channel, "big")
    await inbox.consumer.start()
    body = random.Random(1).randbytes(15 << 20)
    messages: list[Message] = [("", b"big", PLAIN, data) for data in (b"", body, b"", b"x")]
    outcomes = await publish_all(await started_publisher(await connected()), messages)
    assert outcomes == [PublishOutcome(1, 4)]
    await eventually(lambda: len(inbox.got) == 4, "four messages", deadline_s=30)
    assert inbox.messages() == messages


@pytest.mark.parametrize("arguments", [{}, QUORUM], ids=["classic", "quorum"])
async def test_every_property_and_nested_headers_come_byte_for_byte(
    connected: Connect, eventually: Eventually, arguments: dict[str, str]
) -> None:
    channel = await (await connected()).channel()
    await channel.declare_queue("q", durable=True, arguments=arguments)
    inbox = Inbox(channel, "q")
    await inbox.consumer.start()
    sent: Message = ("", b"q", every_property(), b"body")
    await publish_all(await started_publisher(await connected()), [sent])
    await eventually(lambda: inbox.got, "the message")
    ((exchange, key, block, body),) = inbox.messages()
    counted = content_header.header(block, b"x-delivery-count")
    block = content_header.without_headers(block, (), (b"x-delivery-count",))
    assert (exchange, key, block, body) == sent
    assert counted in (None, b"l" + bytes(8))


async def test_what_the_checker_refuses_the_broker_refuses_too(vhost: Vhost) -> None:
    for block in (
        b"\x20\x00\x00\x00\x00\x03\x01aZ",
        b"\x20\x00\x00\x00\x00\x04\x01aI\x00",
        b"\x80\x00\x05abc",
        b"\x10\x00\x02\x02",
    ):
        with pytest.raises(MalformedProperties):
            content_header.check(block)
        connection = await connect(vhost.amqp_uri)
        publisher = await started_publisher(connection)
        publication = publisher.publish_many([("", b"q", block, b"")])
        assert (await asyncio.wait_for(publisher.wait(publication), 10)).unknown == (1,)
        await connection.close()
