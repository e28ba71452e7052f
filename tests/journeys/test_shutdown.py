"""The ends and waits of a node that are nobody's failure: SIGTERM, a broker that is not there yet,
a broker that takes no publishes for a while.
"""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from tests.journeys.conftest import LoadedMeshFactory, LoadFactory, MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.test_kills import RING, TWO_EXCHANGES
from tests.live_brokers import rabbitmqctl
from tests.waiting import until

ENDS_WITHIN_S = 10.0


async def ended_in_order(mesh: LiveMesh, site: str) -> None:
    """SIGTERM: exit 0 within its time, which is longer where many wait for a processor."""
    stretched = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    began = time.monotonic()
    code = await asyncio.to_thread(mesh.stop, site, within_s=ENDS_WITHIN_S * stretched)
    print(f"{site}: exit {code} after {time.monotonic() - began:.1f} s")
    assert code == 0, mesh.logs()


async def site_states(mesh: LiveMesh) -> dict[str, str]:
    return {name: site["state"] for name, site in (await mesh.status())["sites"].items()}


async def test_nodes_ended_by_sigterm_under_load_leave_nothing_in_doubt(
    loaded_mesh: LoadedMeshFactory,
) -> None:
    mesh, traffic = await loaded_mesh(*RING, **TWO_EXCHANGES)
    for site in RING:
        await traffic.more(500)
        await ended_in_order(mesh, site)
        await traffic.more(200)
        mesh.start([site])
    await traffic.end()
    await traffic.arrived(within_s=240)
    traffic.check()


@pytest.mark.long
async def test_a_broker_that_is_away_at_the_start_is_waited_for_and_disturbs_no_other_link(
    live_mesh: MeshFactory, load: LoadFactory
) -> None:
    mesh = await live_mesh(*RING, own=("tokyo",), **{**TWO_EXCHANGES, "topology": "complete"})
    traffic = load(mesh)
    await traffic.declare()
    await mesh.vhosts["tokyo"].broker.stop()
    mesh.start_each()
    await mesh.running(["paris", "sydney"])
    traffic.begin(["paris", "sydney"])
    await traffic.more(500)
    told = (await mesh.status())["sites"]["tokyo"]
    assert told["state"] in ("starting", "down")
    assert "111" in told["reason"], told  # connection refused, and by whom
    await ended_in_order(mesh, "tokyo")

    mesh.start(["tokyo"])
    await mesh.vhosts["tokyo"].broker.start()
    await mesh.running()
    await traffic.more(200)
    await traffic.end()
    traffic.consume()
    await traffic.arrived(within_s=240)
    traffic.check()

    traffic.go_on()
    await traffic.more(200)
    mesh.vhosts["tokyo"].broker.kill()
    await ended_in_order(mesh, "tokyo")


@pytest.mark.long
async def test_a_broker_that_takes_no_publishes_is_waited_for_and_said_to_block(
    live_mesh: MeshFactory, load: LoadFactory
) -> None:
    mesh = await live_mesh(*RING, own=("tokyo",), **TWO_EXCHANGES)
    mesh.start_each()
    await mesh.running()
    traffic = load(mesh)
    await traffic.start(["paris", "sydney"])
    await traffic.more(500)
    broker = mesh.vhosts["tokyo"].broker
    # Small enough for an alarm at once, and not 0, which would mean "no publishing at all".
    await rabbitmqctl(broker, "set_vm_memory_high_watermark", "0.00001")

    async def is_blocked() -> bool:
        return (await site_states(mesh))["tokyo"] == "blocked"

    await until(is_blocked, mesh.logs, 60, every_s=0.3)
    await traffic.more(500)  # the others go on
    assert (await site_states(mesh))["paris"] == "running"
    await rabbitmqctl(broker, "set_vm_memory_high_watermark", "0.4")
    await mesh.running()
    await traffic.more(200)
    await traffic.end()
    await traffic.arrived(within_s=240)
    traffic.check()
    await ended_in_order(mesh, "tokyo")
