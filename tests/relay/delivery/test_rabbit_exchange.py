"""The local exchange over a broker that says what no real one can be made to say."""

from __future__ import annotations

import asyncio

import pytest
from pamqp import commands, header

from relay.bulk_amqp import ChannelClosed
from relay.bulk_amqp.content_header import NONE_PRESENT
from relay.delivery.local_exchange import Answer, Outgoing
from relay.delivery.rabbit_exchange import most_body_bytes, open_exchange
from tests.relay.bulk_amqp.fake_broker import Client, fake_broker


@pytest.mark.parametrize(
    ("code", "text", "most"),
    [
        (
            406,
            "PRECONDITION_FAILED - message size 16777217 is larger than configured max size "
            "16777216",
            16_777_216,
        ),
        (406, "PRECONDITION_FAILED - message size 600 is larger than max size 512", 512),
        (406, "PRECONDITION_FAILED - user_id property set to 'a' but authenticated as 'b'", None),
        (404, "NOT_FOUND - no exchange 'orders' in vhost '/'", None),
        (200, "closed by us", None),
    ],
)
def test_the_limit_of_a_message_is_read_from_why_the_channel_closed(
    code: int, text: str, most: int | None
) -> None:
    assert most_body_bytes(ChannelClosed(code, text)) == most
    assert most_body_bytes(None) is None


async def test_two_flows_whose_confirms_time_out_on_one_channel_give_it_up_once_and_go_on() -> None:
    confirming: list[bool] = [False]

    async def script(client: Client) -> None:
        await client.log_in()
        taken = 0
        while True:
            channel, frame = await client.next_frame()
            match frame:
                case commands.Channel.Open():
                    client.send(channel, commands.Channel.OpenOk())
                    taken = 0
                case commands.Queue.Declare():
                    client.send(channel, commands.Queue.DeclareOk(frame.queue, 0, 0))
                case commands.Exchange.Declare():
                    client.send(channel, commands.Exchange.DeclareOk())
                case commands.Confirm.Select():
                    client.send(channel, commands.Confirm.SelectOk())
                case commands.Channel.Close():
                    client.send(channel, commands.Channel.CloseOk())
                case commands.Connection.Close():
                    client.send(0, commands.Connection.CloseOk())
                case header.ContentHeader():
                    taken += 1
                    if confirming[0]:
                        client.send(channel, commands.Basic.Ack(taken, False))

    message = Outgoing(b"key", NONE_PRESENT, b"")
    async with fake_broker(script) as uri:
        exchange = await open_exchange(uri, lock="lock", name="test")
        answers = await asyncio.gather(
            exchange.publish("orders", [message], timeout_s=0.05),
            exchange.publish("orders", [message], timeout_s=0.05),
        )
        assert answers == [[Answer.UNKNOWN], [Answer.UNKNOWN]]
        confirming[0] = True
        assert await exchange.publish("orders", [message], timeout_s=30) == [Answer.CONFIRMED]
        await exchange.close()
