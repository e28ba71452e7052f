"""SIGKILL of nodes and brokers under load: nothing lost, no unflagged duplicate, and no flag that
was not in doubt.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from relay.batch import MAX_ENTRIES
from tests.journeys.conftest import LoadFactory, MeshFactory

RING = ("paris", "tokyo", "sydney")
TWO_EXCHANGES: dict[str, Any] = {
    "topology": "ring",
    "exchanges": [{"name": "orders"}, {"name": "prices", "mode": "split"}],
}


@pytest.mark.parametrize(
    "kills", [3, pytest.param(20, marks=pytest.mark.long)], ids=["three", "twenty"]
)
async def test_nodes_killed_under_load_lose_nothing_and_repeat_nothing_unflagged(
    live_mesh: MeshFactory, load: LoadFactory, kills: int
) -> None:
    mesh = await live_mesh(*RING, **TWO_EXCHANGES)
    mesh.start_each()
    await mesh.running()
    traffic = load(mesh)
    await traffic.declare()
    traffic.consume()
    traffic.begin()
    chance = random.Random(kills)
    killed = dict.fromkeys(RING, 0)
    for number in range(kills):
        await traffic.more(chance.randrange(1000, 4000))
        victim = RING[number % len(RING)]
        mesh.kill(victim)
        killed[victim] += 1
        await traffic.more(chance.randrange(0, 2000))
        mesh.start([victim])
    await traffic.more(1000)
    await traffic.end()
    await traffic.arrived(within_s=90)
    traffic.check(lambda site, origin: MAX_ENTRIES * killed[site])
