"""A link cut under load: all arrive, in order, none twice, and the nodes stay small."""

from __future__ import annotations

import time

import pytest

from federation.names import Names
from tests.journeys.conftest import MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.memory_watch import MemoryWatch
from tests.live_brokers import rabbitmqctl
from tests.waiting import until
from wan_proxy import LAN

ENDS = ("paris", "tokyo")
BOTH_WAYS = {ENDS: LAN, (ENDS[1], ENDS[0]): LAN}
MOST_GROWTH_MB, MOST_MB = 50.0, 150.0


# For seconds, and what was under way is forgotten; for so long that the nodes themselves give the
# connections up, which are alive again after that.
@pytest.mark.parametrize(
    ("cut_s", "per_second", "forget"),
    [
        pytest.param(5, 300, True, marks=pytest.mark.slow),
        pytest.param(60, 2000, False, marks=pytest.mark.long),
    ],
    ids=["for seconds", "for a minute"],
)
async def test_nothing_is_lost_or_repeated_when_a_link_falls_silent_under_load(
    listening_mesh: MeshFactory, cut_s: int, per_second: int, forget: bool
) -> None:
    mesh = await listening_mesh(*ENDS, wan=BOTH_WAYS, topology="complete")
    async with MemoryWatch(mesh) as memory:
        async with mesh.publishing(per_second, size=1024):
            await mesh.more_published(4 * per_second)
            memory.begin()
            for line in mesh.lines.values():
                line.cut(forget=forget)
            cut_at = time.monotonic()
            await mesh.more_published(cut_s * per_second)
            await until(lambda: time.monotonic() >= cut_at + cut_s, "the cut's end", cut_s)
            assert min(mesh.missing().values()) > (cut_s - 4) * per_second
            for line in mesh.lines.values():
                line.heal()
            await mesh.more_published(4 * per_second)
            await mesh.running()
        await mesh.arrived(within_s=600)
        for link in (await mesh.status())["links"]:
            assert sum(link["ends"].values()) >= 1, link
    mesh.check(most_flags=0)
    assert max(memory.growth_mb.values()) < MOST_GROWTH_MB, memory.growth_mb
    assert max(memory.most_mb.values()) < MOST_MB, memory.most_mb


@pytest.mark.parametrize(
    ("what", "per_second"),
    [
        pytest.param("delete_queue", 300, marks=pytest.mark.slow),
        pytest.param("delete_queue", 2000, marks=pytest.mark.long),
        pytest.param("purge_queue", 2000, marks=pytest.mark.long),
    ],
)
async def test_nothing_is_lost_or_repeated_when_a_receivers_queue_is_meddled_with(
    listening_mesh: MeshFactory, what: str, per_second: int
) -> None:
    mesh = await listening_mesh(*ENDS, wan=BOTH_WAYS, topology="complete")
    async with MemoryWatch(mesh) as memory, mesh.publishing(per_second, size=1024):
        await mesh.more_published(per_second)
        # Batches still go out and are logged; that they are is not heard.
        mesh.lines[ENDS].cut("inward")
        await mesh.more_published(per_second)
        await meddle(mesh, what)
        mesh.lines[ENDS].heal()
        await mesh.more_published(per_second)
        await meddle(mesh, what)
        await mesh.running()
        await mesh.more_published(per_second)
    await mesh.arrived(within_s=120)
    mesh.check(most_flags=0)
    assert max(memory.growth_mb.values()) < MOST_GROWTH_MB, memory.growth_mb
    assert max(memory.most_mb.values()) < MOST_MB, memory.most_mb


async def meddle(mesh: LiveMesh, what: str) -> None:
    """Do that to the queue that the first link's receiver hears from."""
    link = next(link for link in mesh.mesh.links if (link.sender, link.receiver) == ENDS)
    vhost = mesh.vhosts[link.meeting]
    queue = Names(mesh.mesh.name).receiver_queue(link)
    await rabbitmqctl(vhost.broker, what, queue, "--vhost", vhost.name)
