"""SIGKILL of nodes and brokers under load: nothing lost, no unflagged duplicate, and no flag that
was not in doubt.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from relay.state.flow_state import ANNOUNCED_AT_MOST
from tests.journeys.conftest import LoadedMeshFactory, LoadFactory, MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.load import KINDS
from tests.live_brokers import START_WITHIN_S

QUEUES_SETTLE_S = 12.0
"""A quorum queue whose broker is killed sooner after its declaration may stay without a leader.

A time and no condition, since nothing that the broker tells is one: until the kill such a queue has
a leader and a member online and confirms what it is given, and the management API names that leader
afterwards too.
"""
RING = ("paris", "tokyo", "sydney")
TWO_EXCHANGES: dict[str, Any] = {
    "topology": "ring",
    "exchanges": [{"name": "orders"}, {"name": "prices", "mode": "split", "priorities": "order"}],
}


def kept_queues(mesh: LiveMesh) -> dict[str, object]:
    """Arguments of the applications' queues whose broker is killed.

    A killed RabbitMQ 3.10 may leave a classic queue with an index that no start can read
    (rabbit_queue_index:parse_segment_entries), and then does not start again. From 4.0 on a quorum
    queue hands out urgent messages first, so that the order in which they came cannot be seen.
    """
    releases = {vhost.broker.installation.release for vhost in mesh.vhosts.values()}
    return {"x-queue-type": "quorum"} if min(releases) < (4, 0) else {}


@pytest.mark.parametrize(
    "kills",
    [pytest.param(3, marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.long)],
    ids=["three", "twenty"],
)
async def test_nodes_killed_under_load_lose_nothing_and_repeat_nothing_unflagged(
    loaded_mesh: LoadedMeshFactory, kills: int
) -> None:
    mesh, traffic = await loaded_mesh(*RING, kinds=KINDS, **TWO_EXCHANGES)
    chance = random.Random(kills)
    killed = dict.fromkeys(RING, 0)
    for number in range(kills):
        if chance.random() < 0.7:
            await mesh.running()  # else it is killed while it starts, and neighbours with it
        await traffic.more(chance.randrange(300, 1500))
        victim = RING[number % len(RING)]
        mesh.kill(victim)
        killed[victim] += 1
        await traffic.more(chance.randrange(0, 600))
        mesh.start([victim])
    await traffic.more(500)
    await traffic.end()
    await traffic.arrived(within_s=240)
    traffic.check(lambda site, origin: ANNOUNCED_AT_MOST * killed[site])


@pytest.mark.parametrize(
    "kills",
    [pytest.param(1, marks=pytest.mark.long), pytest.param(20, marks=pytest.mark.long)],
    ids=["one", "twenty"],
)
async def test_brokers_killed_under_load_lose_nothing_and_repeat_nothing_unflagged(
    live_mesh: MeshFactory, load: LoadFactory, kills: int
) -> None:
    victims = RING if kills > 1 else ("tokyo",)
    mesh = await live_mesh(*RING, own=victims, **TWO_EXCHANGES)
    settled = asyncio.create_task(asyncio.sleep(QUEUES_SETTLE_S))
    mesh.start_each()
    await mesh.running()
    traffic = load(mesh, kinds=KINDS)
    await traffic.declare(**kept_queues(mesh))
    traffic.begin()
    await settled
    chance = random.Random(kills)
    killed = dict.fromkeys(RING, 0)
    for number in range(kills):
        await traffic.more(chance.randrange(300, 1500))
        victim = victims[number % len(victims)]
        broker = mesh.vhosts[victim].broker
        broker.kill()
        killed[victim] += 1
        await asyncio.sleep(chance.uniform(0, 2))
        await broker.start(deadline_s=START_WITHIN_S)
        await mesh.running(within_s=120)
    await traffic.more(500)
    await traffic.end()
    traffic.consume()
    await traffic.arrived(within_s=240)
    # A killed broker forgets publishes that it has not answered, and acknowledgements of the last
    # moments: in doubt is what its deliverer had sent, and what its packer had logged.
    traffic.check(lambda site, origin: ANNOUNCED_AT_MOST * (killed[site] + killed[origin]))
