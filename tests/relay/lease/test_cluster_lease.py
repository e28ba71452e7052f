"""A lease on a cluster of three nodes, of which some die or hang."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from federation.brokers.cluster_arguments import LOST_CONSUMER, LOST_CONSUMER_MS
from federation.brokers.provision import ONE_AT_A_TIME
from isthmus.brokers.installation import RabbitMQInstallation
from isthmus.brokers.local_brokers import LocalBroker
from relay.bulk_amqp import Connection, connect
from relay.delivery import local_exchange
from relay.delivery.rabbit_exchange import open_exchange
from relay.lease import ClusterLease, LeaseHeld, LeaseName, LeaseTimes
from relay.packing import egress
from relay.packing.rabbit_egress import connect_egress
from tests.conftest import ClusterFactory
from tests.live_brokers import ADMIN, START_WITHIN_S, broker_cluster, discard
from tests.local_cluster import LocalCluster

pytestmark = pytest.mark.slow
HERE, ELSEWHERE = b"h" * 16, b"e" * 16
ARGUMENTS = {
    "x-queue-type": "quorum",
    "x-quorum-initial-group-size": 3,
    ONE_AT_A_TIME: True,
    "x-max-length": 100,
    LOST_CONSUMER: LOST_CONSUMER_MS,
}
TIMES = LeaseTimes(lease_s=4.0, probe_every_s=0.5, patience_s=3.0)
PATIENT = LeaseTimes(lease_s=4.0, probe_every_s=0.5, patience_s=30.0)


class Contenders:
    """Connections that contend for a lease, closed at the end."""

    def __init__(self, lease: str) -> None:
        self.lease = lease
        self.connections: list[Connection] = []

    async def at(self, node: LocalBroker, holder: bytes, times: LeaseTimes = TIMES) -> ClusterLease:
        connection = await connect(node.spec.amqp_uri(ADMIN))
        self.connections.append(connection)
        return ClusterLease(connection, self.lease, holder, times)


@pytest.fixture
def lease() -> str:
    """Name of a lease that no other test has had.

    A quorum queue declared anew under the name of a deleted queue may lack a member: the former
    queue's member ends later than the declaration, and a consumer on its node is given nothing.
    """
    return f"lease-{uuid.uuid4().hex}"


@pytest.fixture
async def cluster(cluster_factory: ClusterFactory, lease: str) -> LocalCluster:
    """Cluster whose nodes the test may kill and suspend."""
    made = await cluster_factory()
    await declare_lease(made.nodes[1], lease)
    return made


@pytest.fixture(scope="module")
def whole_cluster(
    rabbitmq: RabbitMQInstallation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    """Cluster of all tests that leave its nodes alone."""
    made = broker_cluster(rabbitmq, tmp_path_factory.mktemp("cluster"), "own")
    try:
        asyncio.run(made.start(deadline_s=START_WITHIN_S))
        yield made
    finally:
        for node in made.nodes:
            discard(node)


@pytest.fixture
async def nodes(whole_cluster: LocalCluster, lease: str) -> Sequence[LocalBroker]:
    """Nodes of a cluster on which nobody has held the lease yet."""
    await declare_lease(whole_cluster.nodes[1], lease)
    return whole_cluster.nodes


async def declare_lease(node: LocalBroker, lease: str) -> None:
    connection = await connect(node.spec.amqp_uri(ADMIN))
    channel = await connection.channel()
    await channel.declare_queue(lease, durable=True, arguments=ARGUMENTS)
    await channel.declare_exchange(lease, "fanout", durable=True)
    await channel.bind_queue(lease, lease, "")
    await connection.close()


@pytest.fixture
async def contenders(lease: str) -> AsyncIterator[Contenders]:
    made = Contenders(lease)
    yield made
    for connection in made.connections:
        connection.abort("the test is over")


async def test_one_holds_it_and_passes_it_on_at_once_when_it_ends_in_order(
    nodes: Sequence[LocalBroker], contenders: Contenders
) -> None:
    first = await contenders.at(nodes[1], HERE)
    await first.take()
    assert first.is_held
    second = await contenders.at(nodes[2], ELSEWHERE)
    with pytest.raises(LeaseHeld):
        await second.take()
    contenders.connections[1].abort("refused")

    await first.release()
    await contenders.connections[0].close()
    third = await contenders.at(nodes[2], ELSEWHERE)
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


async def test_a_packer_and_a_deliverer_are_refused_while_another_node_has_their_lease(
    nodes: Sequence[LocalBroker], lease: str
) -> None:
    here, there = (node.spec.amqp_uri(ADMIN) for node in nodes[1:])
    ours, theirs = LeaseName(lease, HERE), LeaseName(lease, ELSEWHERE)
    packer = await connect_egress(here, "lock", name="here", lease=ours)
    await packer.take_lock()
    other = await connect_egress(there, "lock", name="there", lease=theirs)
    with pytest.raises(egress.PackerLockHeld):
        await other.take_lock()
    with pytest.raises(local_exchange.DelivererLockHeld):
        await open_exchange(there, lock="lock", name="there", lease=theirs)
    await other.close()

    await packer.close()
    deliverer = await open_exchange(there, lock="lock", name="there", lease=theirs)
    assert not deliverer.closed.done()
    await deliverer.close()


@pytest.mark.long
async def test_a_packer_that_does_not_read_keeps_its_lease(
    nodes: Sequence[LocalBroker], lease: str
) -> None:
    uri = nodes[1].spec.amqp_uri(ADMIN)
    packer = await connect_egress(uri, "lock", name="here", lease=LeaseName(lease, HERE))
    await packer.take_lock()
    packer.pause()
    try:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(LeaseTimes().lease_s + 3):
                await asyncio.shield(packer.closed)
    finally:
        packer.resume()
        await packer.close()
