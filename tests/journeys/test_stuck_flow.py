"""One flow stuck behind a full queue under load: the others are on time, memory stays flat, and
after restarts nothing is flagged that was not in doubt.
"""

from __future__ import annotations

from typing import Any

import pytest

from relay.state.flow_state import ANNOUNCED_AT_MOST
from simulation.invariants import check_site
from tests.journeys.conftest import MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.memory_watch import MemoryWatch
from tests.journeys.traffic import TrafficSink, TrafficSource
from tests.live_brokers import Vhost
from tests.waiting import until

pytestmark = pytest.mark.long  # a minute or more each on two busy cores

PAIR = ("paris", "tokyo")
MOST_GROWTH_MB, MOST_MB = 50.0, 150.0
ROOM = 10
NEVER_GIVES_UP = {"max_attempts": 1000, "backoff": ["0.1s", "1s"]}


@pytest.mark.parametrize("count", [1000, pytest.param(60_000, marks=pytest.mark.long)])
async def test_a_flow_behind_a_full_queue_holds_nobody_up_and_nothing_in_memory(
    live_mesh: MeshFactory, count: int
) -> None:
    mesh = await live_mesh(
        *PAIR,
        topology="complete",
        exchanges=[{"name": "orders"}, {"name": "parcels", "retry": NEVER_GIVES_UP}],
    )
    await mesh.listen(["tokyo"])
    orders, parcels = mesh.source("paris"), TrafficSource(mesh.uri("paris"), "paris", "parcels")
    full = TrafficSink(mesh.uri("tokyo"), "tokyo", "parcels", queue="full")
    await full.declare()
    await limit(mesh.vhosts["tokyo"], full.queue)
    mesh.start_each()
    await mesh.running()

    async def publish(number: int) -> None:
        # In turns, so that each batch of the one stands among batches of the other.
        for _ in range(number // 200):
            await parcels.publish(200, size=1024)
            await orders.publish(200, size=1024)

    async with MemoryWatch(mesh) as memory:
        await publish(count // 4)
        memory.begin()
        await publish(count)
        await mesh.arrived(within_s=300)
    assert await stuck(mesh)
    mesh.check(most_flags=0)
    assert memory.growth_mb["tokyo"] < MOST_GROWTH_MB, memory.growth_mb
    assert max(memory.most_mb.values()) < MOST_MB, memory.most_mb

    # An end in good order leaves nothing in doubt; a kill, what was under way at most.
    for end, most_flags in ((mesh.stop, 0), (mesh.kill, ANNOUNCED_AT_MOST)):
        await publish(200)
        end("tokyo")
        await publish(200)
        mesh.start(["tokyo"])
        await mesh.running()
        await publish(200)
        await mesh.arrived(within_s=120)
        assert await stuck(mesh)
        mesh.check(most_flags=most_flags)

    await no_limit(mesh.vhosts["tokyo"], full.queue)
    full.resume()
    await until(
        lambda: not full.missing_of(parcels),
        lambda: f"{full.missing_of(parcels)} parcels missing\n{mesh.logs()}",
        300,
    )
    check_site(
        "tokyo", full.arrived, {"paris": parcels.confirmed}, most_flags=3 * ANNOUNCED_AT_MOST
    )
    await full.close()


async def stuck(mesh: LiveMesh) -> bool:
    """Whether the parcels from paris stand at tokyo, and nothing else does."""
    told: dict[str, Any] = (await mesh.status())["sites"]["tokyo"]["standing_flows"]
    return list(told) == ["paris/parcels"] and "reject-publish" in told["paris/parcels"]


async def limit(vhost: Vhost, queue: str) -> None:
    """Let the queue refuse what is beyond a few."""
    definition = {"max-length": ROOM, "overflow": "reject-publish"}
    policy = {"pattern": f"^{queue}$", "apply-to": "queues", "definition": definition}
    await vhost.api("PUT", f"/policies/{{vhost}}/{queue}", policy)


async def no_limit(vhost: Vhost, queue: str) -> None:
    await vhost.api("DELETE", f"/policies/{{vhost}}/{queue}")
