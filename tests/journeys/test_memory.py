"""A node that serves one site stays small, whatever the backlog and however big the messages."""

from __future__ import annotations

import pytest

from tests.journeys.conftest import MeshFactory
from tests.journeys.memory_watch import MemoryWatch

FOUR = ("paris", "tokyo", "sydney", "lima")
MOST_MB = 150.0
KIB = 1024


@pytest.mark.long
@pytest.mark.parametrize(("count", "size"), [(20_000, 4 * KIB), (200, 400 * KIB), (30, 3000 * KIB)])
async def test_nodes_stay_small_while_three_neighbours_catch_up(
    live_mesh: MeshFactory, count: int, size: int
) -> None:
    mesh = await live_mesh(*FOUR, topology="complete")
    await mesh.listen(FOUR[1:])
    mesh.start(["paris"])
    await mesh.running(["paris"])
    async with MemoryWatch(mesh) as alone:
        await mesh.source("paris").publish(count, size=size)
        await mesh.until_told(lambda told: told["sites"]["paris"]["own"] == count, "packed")
    assert max(alone.most_mb.values()) < MOST_MB, alone.most_mb
    # Started anew it has nothing in memory: all three links read their way through the log.
    mesh.stop("paris")
    mesh.start_each()
    async with MemoryWatch(mesh) as memory:
        await mesh.arrived(within_s=600)
    assert max(memory.most_mb.values()) < MOST_MB, memory.most_mb
    mesh.check(most_flags=0)
