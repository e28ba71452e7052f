"""A deliverer that dies with much in its socket, on a real broker: nothing of it comes behind its
successor's first message, or what was flagged would be the first copy and the other unflagged.
"""

from __future__ import annotations

import asyncio

import pytest

from isthmus.brokers.local_brokers import LocalBroker
from relay.bulk_amqp import Consumer, Delivery, connect
from relay.bulk_amqp.connection import HEARTBEAT_S
from relay.bulk_amqp.content_header import NONE_PRESENT
from relay.delivery.deliverer import DeliveryConnection
from relay.delivery.local_exchange import Answer, DelivererLockHeld, Outgoing
from relay.delivery.rabbit_exchange import RabbitExchange, open_exchange
from relay.node.parts import SETTLE_S
from relay.waiters import Signal
from tests.conftest import LocalBrokerFactory
from tests.live_brokers import Vhost, own_vhost, rabbitmqctl, take_all_memory
from tests.waiting import until

pytestmark = pytest.mark.long  # a broker of its own

COUNT = 30_000


async def channels(broker: LocalBroker) -> int:
    return int(await rabbitmqctl(broker, "eval", "length(rabbit_channel:list())."))


async def bodies_in(vhost: Vhost, queue: str, count: int) -> list[bytes]:
    connection = await connect(vhost.amqp_uri, name="reader")
    got: list[bytes] = []

    def take(deliveries: list[Delivery]) -> None:
        got.extend(bytes(one[5]) for one in deliveries)

    consumer = Consumer(await connection.channel(), queue, take)
    await consumer.start(prefetch=0, no_ack=True)
    await until(lambda: len(got) >= count, lambda: f"{len(got)} of {count}", 60)
    await connection.close()
    return got


async def open_at(vhost: Vhost, heartbeat_s: int = HEARTBEAT_S) -> RabbitExchange:
    return await open_exchange(
        vhost.amqp_uri, lock="lock", name="deliverer", heartbeat_s=heartbeat_s
    )


async def test_nothing_of_a_dead_deliverer_comes_behind_its_successor(
    local_broker_factory: LocalBrokerFactory,
) -> None:
    broker = await local_broker_factory()
    vhost = await own_vhost(broker)
    admin = await connect(vhost.amqp_uri, name="test")
    channel = await admin.channel()
    await channel.declare_exchange("orders", "topic")
    await channel.declare_queue("orders.queue")
    await channel.bind_queue("orders.queue", "orders", "#")
    before = await channels(broker)

    # By heartbeats a broker notices after 5 to 10 s that a blocked client is gone, and drops what
    # is left in the socket; on a busy machine the test takes longer than that.
    first = await open_at(vhost, heartbeat_s=0)
    one = Outgoing(b"key", NONE_PRESENT, b"first".ljust(2000, b"."))
    assert await first.publish("orders", [one], timeout_s=30) == [Answer.CONFIRMED]
    # Under an alarm the broker reads no more of a publisher than its first message.
    await take_all_memory(broker)
    publishing = asyncio.create_task(first.publish("orders", [one] * COUNT, timeout_s=60))
    await until(lambda: first.blocked, "blocked", 60)
    first._connection.abort("killed")
    await asyncio.gather(publishing, return_exceptions=True)
    for _ in range(3):  # it has not even noticed
        with pytest.raises(DelivererLockHeld):
            await open_at(vhost)
    await rabbitmqctl(broker, "set_vm_memory_high_watermark", "0.4")

    successor = DeliveryConnection(lambda: open_at(vhost), Signal(), lambda: 0.0, SETTLE_S)
    keeping = asyncio.create_task(successor.keep())
    async with asyncio.timeout(120):
        exchange = await successor.exchange()
    assert exchange is not None
    await exchange.publish("orders", [one._replace(body=b"second")], timeout_s=60)

    async def first_is_gone() -> bool:
        return await channels(broker) == before + 2  # those of the successor

    await until(first_is_gone, "the first one's channels are gone", 60)
    count = (await channel.declare_queue("orders.queue", passive=True)).message_count
    bodies = await bodies_in(vhost, "orders.queue", count)
    assert count > 2
    assert bodies.index(b"second") == count - 1
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await exchange.close()
    await admin.close()
