"""A mesh that is changed at random, while its nodes are killed at random."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.journeys.conftest import LoadedMeshFactory
from tests.journeys.test_changes import SITES, pair

pytestmark = pytest.mark.long

PARIS, TOKYO, LIMA = SITES
GRAPHS: list[dict[str, Any]] = [
    {"topology": {"ring": {"both": True}}, "links": []},
    {"topology": "ring", "links": []},
    {"topology": "complete", "links": []},
    {"topology": "custom", "links": [pair(PARIS, TOKYO), pair(TOKYO, LIMA)]},
    {"topology": "custom", "links": [pair(LIMA, TOKYO), pair(PARIS, LIMA)]},
    {"topology": "custom", "links": [pair(LIMA, PARIS), pair(PARIS, TOKYO)]},
    {
        "topology": "custom",
        "links": [pair(LIMA, PARIS) | {"dial": "from"}, pair(PARIS, TOKYO), pair(TOKYO, LIMA)],
    },
]
BESIDE: list[list[dict[str, Any]]] = [
    [],
    [{"name": "stock"}],
    [{"name": "prices", "keys": ["a.*"]}],
    [{"name": "stock"}, {"name": "prices", "keys": ["a.*"]}],
]
"""Other exchanges: each that comes or goes is a new incarnation of every packer."""
MOST_IN_DOUBT = 1200
"""Most flagged messages of one flow at one site over all kills: 512 for each that falls into a
commit."""


@pytest.mark.parametrize("seed", range(2))
async def test_nothing_is_lost_nor_doubled_by_changes_and_kills(
    loaded_mesh: LoadedMeshFactory, seed: int
) -> None:
    chance = random.Random(seed)
    mesh, load = await loaded_mesh(*SITES, **GRAPHS[0])
    for _ in range(20):
        orders = {"name": "orders"} | chance.choice([{}, {"keys": ["order.#"]}])
        mesh.document |= chance.choice(GRAPHS)
        mesh.document["outage_window"] = chance.choice(["24h", "48h", "72h"])
        mesh.document["exchanges"] = [orders, *chance.choice(BESIDE)]
        mesh.write()
        if chance.random() < 0.7:  # else the nodes go by a file that nobody has applied yet
            await mesh.apply()
        if chance.random() < 0.35:
            site = chance.choice(SITES)
            await load.more(chance.randrange(1, 600))
            mesh.kill(site)
            await load.more(chance.randrange(1, 600))
            mesh.start([site])
        await load.more(chance.randrange(1, 1200))
    mesh.document |= GRAPHS[0] | {"exchanges": [{"name": "orders"}]}
    mesh.write()
    await mesh.apply()
    await mesh.running()
    await asyncio.wait_for(load.end(), 60)
    await load.arrived()
    load.check(lambda site, origin: MOST_IN_DOUBT)
