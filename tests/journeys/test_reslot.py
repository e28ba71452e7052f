"""Changes of a site's slots under load: nothing lost, nothing twice unflagged, order kept."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.journeys.conftest import LoadedMeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.supervised_mesh import isthmus

pytestmark = pytest.mark.slow
SITES = ("paris", "tokyo", "lima")
RING: dict[str, Any] = {
    "topology": "ring",
    "both": True,
    "exchanges": [{"name": "orders"}, {"name": "prices"}, {"name": "news", "identity": "none"}],
}


@contextlib.asynccontextmanager
async def reslotting(mesh: LiveMesh, site: str, *words: str) -> AsyncIterator[None]:
    """Have the site's slots changed, which has quiesced once the block begins, and has its new
    states once the block, in which the node is to end, has ended.
    """
    command = asyncio.create_task(isthmus(mesh, "reslot", site, *words))
    try:
        await mesh.until_told(
            lambda told: told["sites"][site]["state"] == "quiesced" or command.done(),
            f"{site} is quiesced",
        )
        assert not command.done(), command.result()
        yield
        code, said = await command
        assert code == 0, said
    finally:
        command.cancel()


async def cut(mesh: LiveMesh, site: str, **keys: Any) -> None:
    """Have a site run with other slots, by the file of all sites."""
    slots = str(keys["slots"])
    places = [f"--place={name}={at}" for name, at in keys.get("place", {}).items()]
    async with reslotting(mesh, site, "--slots", slots, *places):
        assert mesh.stop(site) == 0
    mesh.document.setdefault("sites", {})[site] = keys
    mesh.write()
    await mesh.apply()
    mesh.start([site])
    await mesh.running()


async def test_slots_are_changed_under_load(loaded_mesh: LoadedMeshFactory) -> None:
    mesh, traffic = await loaded_mesh(*SITES, **RING)
    await traffic.more(500)
    await cut(mesh, "paris", slots=4, place={"orders": 2, "prices": 3})
    await traffic.more(500)
    told = await mesh.status()
    packed = [slot["packed"] for slot in told["sites"]["paris"]["slots"]]
    assert [count > 0 for count in packed] == [False, True, True, True]
    await cut(mesh, "tokyo", slots=2)
    await traffic.more(300)
    await cut(mesh, "paris", slots=1)
    await traffic.more(300)
    await traffic.end()
    await traffic.arrived()
    traffic.check(lambda site, origin: 0)
