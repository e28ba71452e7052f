"""The local exchange of a site whose cluster loses a node."""

from __future__ import annotations

import asyncio

import pytest

from relay.bulk_amqp import connect
from relay.bulk_amqp.content_header import NONE_PRESENT
from relay.delivery.local_exchange import Answer, Outgoing
from relay.delivery.rabbit_exchange import open_exchange
from tests.conftest import ClusterFactory
from tests.live_brokers import ADMIN
from tests.local_cluster import LocalCluster

pytestmark = pytest.mark.slow
WITHIN_S = 60.0
MESSAGE = Outgoing(b"key", NONE_PRESENT, b"body")
QUORUM = {"x-queue-type": "quorum", "x-quorum-initial-group-size": 3}


async def with_queue(cluster: LocalCluster) -> None:
    """Declare a quorum queue that the second node leads, bound to a fanout exchange `orders`."""
    connection = await connect(cluster.nodes[1].spec.amqp_uri(ADMIN))
    channel = await connection.channel()
    await channel.declare_exchange("orders", "fanout", durable=True)
    await channel.declare_queue("box", durable=True, arguments=QUORUM)
    await channel.bind_queue("box", "orders", "")
    await connection.close()


async def test_what_a_dead_leaders_queue_refused_is_taken_once_there_is_another_leader(
    cluster_factory: ClusterFactory,
) -> None:
    cluster = await cluster_factory()
    await with_queue(cluster)
    exchange = await open_exchange(cluster.nodes[0].spec.amqp_uri(ADMIN), lock="lock", name="test")
    cluster.nodes[1].kill()
    async with asyncio.timeout(WITHIN_S):
        answer = [Answer.REFUSED]
        while answer == [Answer.REFUSED]:
            answer = await exchange.publish("orders", [MESSAGE], timeout_s=WITHIN_S)
    assert answer == [Answer.CONFIRMED]
    await exchange.close()
