"""Ends of links that meet at a cluster, of which a node is lost."""

from __future__ import annotations

import pytest

from isthmus.brokers.local_brokers import LocalBroker
from relay.bulk_amqp import connect
from relay.links.transport.rabbit import LinkEndAddress, RabbitLinkConnector
from tests.conftest import ClusterFactory
from tests.live_brokers import ADMIN

pytestmark = pytest.mark.slow


def receiver_at(node: LocalBroker) -> RabbitLinkConnector:
    return RabbitLinkConnector(
        LinkEndAddress(
            uri=node.spec.amqp_uri(ADMIN),
            user=ADMIN.name,
            sends_to="acks",
            hears_from="data",
            queue="link.paris.data-from.tokyo",
            is_receiver=True,
            queue_bytes=1_000_000,
            name="receiver",
            is_cluster=True,
        )
    )


async def test_a_receiver_whose_node_is_lost_connects_to_another_at_once(
    cluster_factory: ClusterFactory,
) -> None:
    cluster = await cluster_factory()
    _, second, third = cluster.nodes
    connection = await connect(third.spec.amqp_uri(ADMIN))
    channel = await connection.channel()
    for exchange in ("data", "acks"):
        await channel.declare_exchange(exchange, "fanout", durable=True)

    await receiver_at(second).connect()
    second.kill()
    end = await receiver_at(third).connect()
    await end.close()
    await connection.close()
