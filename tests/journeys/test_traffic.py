"""The journeys' applications themselves."""

from __future__ import annotations

import asyncio

import pytest

from relay.bulk_amqp import connect
from tests.journeys.traffic import TrafficSource
from tests.live_brokers import Vhost

pytestmark = pytest.mark.any_release


async def test_a_rate_holds_for_calls_of_few_messages_too(vhost: Vhost) -> None:
    connection = await connect(vhost.amqp_uri, name="declare")
    channel = await connection.channel()
    await channel.declare_exchange("orders", "topic")
    await connection.close()
    source = TrafficSource(vhost.amqp_uri, "paris")
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(4):
        await source.publish(10, per_second=40)
    assert loop.time() - began >= 1.0
    assert len(source.confirmed) == 40
