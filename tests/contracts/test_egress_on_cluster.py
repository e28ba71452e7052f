"""Order of what an egress queue of a cluster hands out when the node goes that leads the queue and
has its consumer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from federation.brokers.cluster_arguments import LEADER, on_cluster
from federation.brokers.credentials import make_credentials
from federation.brokers.provision import declarations
from federation.names import Names
from isthmus.brokers.local_brokers import LocalBroker
from relay.bulk_amqp import Publisher, connect
from relay.packing.comeback.returned_prefix import PREFETCH
from relay.packing.egress import EgressMessage
from relay.packing.rabbit_egress import connect_egress
from tests.conftest import ClusterFactory
from tests.federation.meshes import mesh_of
from tests.live_brokers import ADMIN
from tests.waiting import until

pytestmark = pytest.mark.slow
MESH = mesh_of(
    "mesh: three\ntopology: complete\nexchanges: [{name: orders}]\n"
    "sites: {paris: {brokers: 3}, tokyo: {}}\n"
)
QUEUE = Names("three").egress("orders")
PLAIN = b"\x10\x00\x02"
"""Properties: persistent."""
ACKNOWLEDGED, IN_ALL = 300, 4_000
NET_TICK_S = 5
"""A node that hangs is noticed within a quarter more."""
WITHIN_S = 60.0


@pytest.mark.parametrize(
    "go",
    [
        pytest.param(LocalBroker.kill, id="killed"),
        pytest.param(LocalBroker.suspend, id="hung", marks=pytest.mark.long),
    ],
)
async def test_what_a_lost_consumer_had_in_hand_comes_before_anything_newer(
    cluster_factory: ClusterFactory, go: Callable[[LocalBroker], None]
) -> None:
    cluster = await cluster_factory(net_tick_s=NET_TICK_S)
    first, second, third = cluster.nodes
    await declare(second)
    await publish(first, range(IN_ALL))
    lost = await connect_egress(second.spec.amqp_uri(ADMIN), "lock", name="lost")
    had: list[EgressMessage] = []
    queue = await lost.consume(QUEUE, had.extend, lambda _: None)
    await until(lambda: len(had) == PREFETCH, "it has all that it may have", WITHIN_S)
    queue.ack(ACKNOWLEDGED)
    await until(lambda: len(had) == PREFETCH + ACKNOWLEDGED, "it was acknowledged", WITHIN_S)

    go(second)
    # As soon as may be: before the queue knows of the loss, or has a leader again.
    found = await connect_egress(third.spec.amqp_uri(ADMIN), "another", name="found")
    came: list[EgressMessage] = []
    async with asyncio.timeout(WITHIN_S):
        taken = await found.consume(QUEUE, came.extend, lambda _: None)
    while not came or numbers(came)[-1] < IN_ALL - 1:
        count = len(came)
        await until(lambda count=count: len(came) > count, "more comes", WITHIN_S)
        taken.ack(len(came))
    assert numbers(came) == list(range(ACKNOWLEDGED, IN_ALL))
    again = PREFETCH
    assert [message[1] for message in came] == [True] * again + [False] * (len(came) - again)
    await found.close()
    await lost.close()


def numbers(messages: list[EgressMessage]) -> list[int]:
    return [int(message[5]) for message in messages]


async def declare(node: LocalBroker) -> None:
    """Declare an egress queue as `apply` does, with its leader at that node."""
    declared = declarations(MESH, "paris", make_credentials(MESH)).queues
    queue = on_cluster(next(queue for queue in declared if queue.name == QUEUE), 3)
    arguments = {**queue.arguments, LEADER: "client-local"}
    connection = await connect(node.spec.amqp_uri(ADMIN))
    channel = await connection.channel()
    await channel.declare_queue(QUEUE, durable=True, arguments=arguments)
    await connection.close()


async def publish(node: LocalBroker, wanted: range) -> None:
    """Publish a message of each number, and wait until all are confirmed."""
    connection = await connect(node.spec.amqp_uri(ADMIN))
    publisher = Publisher(await connection.channel())
    await publisher.start()
    messages = [("", QUEUE.encode(), PLAIN, b"%d" % number) for number in wanted]
    async with asyncio.timeout(WITHIN_S):
        outcome = await publisher.wait(publisher.publish_many(messages))
    assert not outcome.nacked
    await connection.close()
