"""A consumer against a scripted peer: tags that are settled, and callbacks that raise."""

from __future__ import annotations

import asyncio

import pytest
from pamqp import commands

from relay.bulk_amqp import CallbackFailed, Consumer, Delivery, Misuse, connect
from tests.conftest import Eventually
from tests.relay.bulk_amqp import wire
from tests.relay.bulk_amqp.fake_broker import Client, fake_broker

PLAIN = b"\x10\x00\x02"


async def delivering(client: Client, count: int) -> bool:
    """Serve one consumer ``count`` messages as soon as it asks; whether it asked without acks."""
    await client.log_in()
    await client.open_channel()
    await client.expect(commands.Basic.Qos)
    client.send(1, commands.Basic.QosOk())
    asked = await client.expect(commands.Basic.Consume)
    client.send(1, commands.Basic.ConsumeOk(asked.consumer_tag))
    for tag in range(1, count + 1):
        message = (tag, False, "e", b"k", PLAIN, b"body")
        client.writer.write(wire.delivery(1, asked.consumer_tag, message))
    return bool(asked.no_ack)


async def test_a_callback_that_raises_closes_the_connection_and_is_named() -> None:
    ended: list[Exception] = []

    def on_deliveries(deliveries: list[Delivery]) -> None:
        raise ZeroDivisionError("no")

    async def script(client: Client) -> None:
        await delivering(client, 1)
        await client.reader.read()

    async with fake_broker(script) as uri:
        connection = await connect(uri)
        channel = await connection.channel()
        consumer = Consumer(channel, "q", on_deliveries, on_ended=ended.append)
        starting = asyncio.ensure_future(consumer.start())
        reason = await asyncio.wait_for(connection.wait_closed(), 5)
        # In the same read as the broker's answer: `start` has not returned, and tells it.
        assert await asyncio.gather(starting, return_exceptions=True) == [reason]
        assert isinstance(reason, CallbackFailed)
        assert isinstance(reason.__cause__, ZeroDivisionError)
        assert ended == []


async def test_a_callback_that_raises_while_all_ends_is_reported_to_the_loop() -> None:
    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))

    async def script(client: Client) -> None:
        await delivering(client, 0)

    def on_ended(reason: Exception) -> None:
        raise ZeroDivisionError("no")

    async with fake_broker(script) as uri:
        connection = await connect(uri)
        consumer = Consumer(await connection.channel(), "q", lambda _: None, on_ended=on_ended)
        await asyncio.gather(consumer.start(), return_exceptions=True)
        await asyncio.wait_for(connection.wait_closed(), 5)
    assert [type(context["exception"]) for context in told] == [ZeroDivisionError]


async def test_tags_are_settled_in_order_or_not_at_all(eventually: Eventually) -> None:
    got: list[Delivery] = []
    settled: list[tuple[str, int, bool]] = []

    async def script(client: Client) -> None:
        await delivering(client, 10)
        while True:
            _, frame = await client.next_frame()
            settled.append((frame.name, frame.delivery_tag, frame.multiple))  # type: ignore[attr-defined]

    async with fake_broker(script) as uri:
        connection = await connect(uri)
        consumer = Consumer(await connection.channel(), "q", got.extend)
        with pytest.raises(Misuse):
            consumer.ack(1)
        await consumer.start()
        await eventually(lambda: len(got) == 10, "ten deliveries")
        consumer.ack(4)
        consumer.nack(7, requeue=True)
        consumer.ack(6, multiple=False)
        for tag in (4, 3, 7, 6, 11, 0):
            with pytest.raises(Misuse, match=f"delivery tag {tag} cannot be settled"):
                consumer.ack(tag)
        consumer.ack(5, multiple=False)
        assert consumer.settled_up_to == 7
        consumer.ack(10)
        assert consumer.settled_up_to == 10
        await eventually(lambda: len(settled) == 5, "five settlements")
        assert settled == [
            ("Basic.Ack", 4, True),
            ("Basic.Nack", 7, False),
            ("Basic.Ack", 6, False),
            ("Basic.Ack", 5, False),
            ("Basic.Ack", 10, True),
        ]
        assert connection.close_reason is None


async def test_without_acknowledgements_there_is_nothing_to_settle(
    eventually: Eventually,
) -> None:
    got: list[Delivery] = []
    asked: list[bool] = []

    async def script(client: Client) -> None:
        asked.append(await delivering(client, 2))
        await client.reader.read()

    async with fake_broker(script) as uri:
        connection = await connect(uri)
        consumer = Consumer(await connection.channel(), "q", got.extend)
        await consumer.start(prefetch=0, no_ack=True)
        await eventually(lambda: len(got) == 2, "two deliveries")
        with pytest.raises(Misuse, match="nothing to settle"):
            consumer.ack(2)
        assert asked == [True]
        assert connection.close_reason is None
