"""Ends of links that meet at a cluster, of which a node is lost."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest

from federation.brokers.address_ring import AddressRing
from federation.brokers.endpoint import Endpoint
from isthmus.brokers.local_brokers import LocalBroker
from relay.bulk_amqp import Address, connect
from relay.links.transport import rabbit
from relay.links.transport.link_end import LinkUnreachable
from relay.links.transport.rabbit import LinkEndAddress, RabbitLinkConnector
from tests.conftest import ClusterFactory
from tests.live_brokers import ADMIN
from tests.relay.bulk_amqp.fake_broker import Client, fake_broker, forever

RECEIVER = LinkEndAddress(
    uri="amqp://user:secret@nowhere.invalid/vhost",
    user=ADMIN.name,
    sends_to="acks",
    hears_from="data",
    queue="link.paris.data-from.tokyo",
    is_receiver=True,
    queue_bytes=1_000_000,
    name="receiver",
    is_cluster=True,
)


def receiver_at(node: LocalBroker) -> RabbitLinkConnector:
    return RabbitLinkConnector(replace(RECEIVER, uri=node.spec.amqp_uri(ADMIN)))


async def test_a_node_that_does_not_declare_the_queue_is_left_for_another_and_all_get_time_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On 4.3 a node that is cut off from the others admits clients, and answers no declaration for
    30 s.
    """
    monkeypatch.setattr(rabbit, "_OPEN_WITHIN_S", 0.2)
    monkeypatch.setattr(rabbit, "_SLOWLY_OPEN_WITHIN_S", 0.3)
    came: list[str] = []

    async def serve(client: Client, name: str) -> None:
        await client.log_in()
        came.append(name)
        await client.open_channel()
        await forever()

    async with contextlib.AsyncExitStack() as stack:
        uris = [
            await stack.enter_async_context(
                fake_broker(lambda client, name=name: serve(client, name))
            )
            for name in ("cut off", "whole")
        ]
        places = [Endpoint(one.host, one.port) for one in map(Address.parse, uris)]
        receiver = RabbitLinkConnector(replace(RECEIVER, places=tuple(places)), AddressRing())
        for within in ("0.2", "0.2", "0.3"):
            async with asyncio.timeout(10):
                with pytest.raises(LinkUnreachable, match=f"declared no link within {within} s"):
                    await receiver.connect()
        assert came == ["cut off", "whole", "cut off"]


@pytest.mark.slow
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
