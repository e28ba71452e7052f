"""A link cut silently under load: all arrive, in order, none twice, and the nodes stay small."""

from __future__ import annotations

import pytest

from tests.journeys.conftest import MeshFactory
from tests.journeys.live_mesh import MemoryWatch
from wan_proxy import LAN

ENDS = ("paris", "tokyo")
BOTH_WAYS = {ENDS: LAN, (ENDS[1], ENDS[0]): LAN}
MOST_GROWTH_MB = 50.0

CUTS = pytest.mark.parametrize(
    ("cut_s", "per_second"),
    [(8, 500), pytest.param(60, 2000, marks=pytest.mark.long)],
    ids=["for seconds", "for a minute"],
)


@CUTS
async def test_nothing_is_lost_or_repeated_when_a_link_falls_silent_under_load(
    live_mesh: MeshFactory, cut_s: int, per_second: int
) -> None:
    mesh = await live_mesh(*ENDS, wan=BOTH_WAYS, topology="complete")
    await mesh.listen()
    mesh.start_each()
    await mesh.running()
    async with mesh.load(per_second, size=1024):
        await mesh.more_published(4 * per_second)
        async with MemoryWatch(mesh) as memory:
            for line in mesh.lines.values():
                line.cut()
            await mesh.more_published(cut_s * per_second)
            assert min(mesh.missing().values()) > (cut_s - 4) * per_second
            for line in mesh.lines.values():
                line.heal()
            await mesh.running()
            await mesh.more_published(4 * per_second)
    await mesh.arrived(within_s=120)
    print(memory.growth_mb)
    mesh.check(most_flags=0)
    assert max(memory.growth_mb.values()) < MOST_GROWTH_MB, memory.growth_mb
