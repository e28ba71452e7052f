"""A lease on a cluster of three nodes, of which some die or hang."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from isthmus.local_brokers import LocalBroker
from isthmus.local_cluster import LocalCluster
from relay.bulk_amqp import Connection, connect
from relay.lease.lease import Lease, LeaseHeld, LeaseTimes
from tests.conftest import ClusterFactory
from tests.live_brokers import ADMIN

HERE, ELSEWHERE = b"h" * 16, b"e" * 16
NAME = "lease"
ARGUMENTS = {
    "x-queue-type": "quorum",
    "x-quorum-initial-group-size": 3,
    "x-single-active-consumer": True,
    "x-max-length": 100,
    "x-consumer-disconnected-timeout": 5000,
}
TIMES = LeaseTimes(lease_s=4.0, probe_every_s=0.5, patience_s=3.0)
PATIENT = LeaseTimes(lease_s=4.0, probe_every_s=0.5, patience_s=30.0)


class Contenders:
    """Connections that contend, closed at the end."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []

    async def at(self, node: LocalBroker, holder: bytes, times: LeaseTimes = TIMES) -> Lease:
        connection = await connect(node.spec.amqp_uri(ADMIN))
        self.connections.append(connection)
        return Lease(connection, NAME, holder, times)


@pytest.fixture
async def cluster(cluster_factory: ClusterFactory) -> LocalCluster:
    made = await cluster_factory()
    connection = await connect(made.nodes[1].spec.amqp_uri(ADMIN))
    channel = await connection.channel()
    await channel.declare_queue(NAME, durable=True, arguments=ARGUMENTS)
    await channel.declare_exchange(NAME, "fanout", durable=True)
    await channel.bind_queue(NAME, NAME, "")
    await connection.close()
    return made


@pytest.fixture
async def contenders() -> AsyncIterator[Contenders]:
    made = Contenders()
    yield made
    for connection in made.connections:
        connection.abort("the test is over")


async def test_one_holds_it_and_passes_it_on_at_once_when_it_ends_in_order(
    cluster: LocalCluster, contenders: Contenders
) -> None:
    first = await contenders.at(cluster.nodes[1], HERE)
    await first.take()
    assert first.is_held
    second = await contenders.at(cluster.nodes[2], ELSEWHERE)
    with pytest.raises(LeaseHeld):
        await second.take()
    contenders.connections[1].abort("refused")

    await first.release()
    await contenders.connections[0].close()
    third = await contenders.at(cluster.nodes[2], ELSEWHERE)
    async with asyncio.timeout(TIMES.lease_s - 1):
        await third.take()
    assert third.is_held


async def test_when_the_holders_node_is_killed_another_holder_gets_it_after_the_last_proof(
    cluster: LocalCluster, contenders: Contenders
) -> None:
    first = await contenders.at(cluster.nodes[1], HERE)
    await first.take()
    cluster.nodes[1].kill()
    killed_at = asyncio.get_running_loop().time()
    second = await contenders.at(cluster.nodes[2], ELSEWHERE, PATIENT)
    await second.take()
    assert asyncio.get_running_loop().time() - killed_at >= TIMES.lease_s - TIMES.probe_every_s
    assert not first.is_held


async def test_a_holder_without_a_majority_gives_its_connection_up(
    cluster: LocalCluster, contenders: Contenders
) -> None:
    first = await contenders.at(cluster.nodes[1], HERE)
    await first.take()
    for node in (cluster.nodes[0], cluster.nodes[2]):
        node.suspend()
    async with asyncio.timeout(TIMES.lease_s + 5):
        reason = await contenders.connections[0].wait_closed()
    assert "could not be proven" in str(reason)
    assert not first.is_held
