"""A state folder that is deleted, or put back from an older copy: the node stops and says why,
`isthmus recover` mends it, nothing is lost and nothing repeated without its flag.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from tests.journeys.conftest import LoadedMeshFactory, LoadFactory, MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.supervised_mesh import isthmus, node_record, supervised
from tests.journeys.test_kills import RING, TWO_EXCHANGES
from tests.waiting import until

STOPPED = 3


def state_of(mesh: LiveMesh, site: str) -> Path:
    return mesh.state / "sites" / site / "state"


def doubted(said: str) -> int:
    """How many messages `recover` leaves in doubt."""
    found = re.search(r"([\d,]+) will be delivered flagged", said)
    assert found, said
    return int(found[1].replace(",", ""))


async def stopped_by_itself(mesh: LiveMesh, site: str) -> int:
    """The exit code of a node that ends of its own accord."""
    return await asyncio.to_thread(mesh.processes[site].wait, 60)


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("an older copy", marks=pytest.mark.slow),
        pytest.param("deleted", marks=pytest.mark.long),
    ],
)
async def test_a_node_whose_state_is_lost_stops_and_is_mended(
    loaded_mesh: LoadedMeshFactory, how: str
) -> None:
    mesh, traffic = await loaded_mesh(*RING, **TWO_EXCHANGES)
    await traffic.more(1500)
    state, copy = state_of(mesh, "tokyo"), mesh.folder / "copy"
    assert mesh.stop("tokyo") == 0
    if how != "deleted":
        shutil.copytree(state, copy)
        mesh.start(["tokyo"])
        await mesh.running()
        await traffic.more(1500)
        assert mesh.stop("tokyo") == 0
    shutil.rmtree(state)
    if how != "deleted":
        copy.rename(state)

    mesh.start(["tokyo"])
    assert await stopped_by_itself(mesh, "tokyo") == STOPPED
    assert "isthmus recover" in mesh.logs()
    await traffic.more(500)
    code, said = await isthmus(mesh, "recover", "--site", "tokyo")
    assert code == 0, said
    doubt = doubted(said)

    mesh.start(["tokyo"])
    await mesh.running()
    await traffic.more(500)
    await traffic.end()
    await traffic.arrived(within_s=240)
    # Only at the site that lost its state, and no more than recover said.
    flags = traffic.check(lambda site, origin: doubt if site == "tokyo" else 0)
    assert sum(sum(of_sink.values()) for of_sink in flags.values()) <= doubt


@pytest.mark.slow
async def test_after_a_kill_and_a_deleted_folder_what_lies_past_the_mark_comes_flagged(
    live_mesh: MeshFactory, load: LoadFactory
) -> None:
    mesh = await live_mesh(*RING, **TWO_EXCHANGES)
    async with supervised(mesh) as supervisor:
        await mesh.running()
        traffic = load(mesh)
        await traffic.start()
        await traffic.more(1500)
        before = node_record(supervisor, "tokyo")
        # What the supervisor starts at once finds its folder gone.
        shutil.rmtree(state_of(mesh, "tokyo"))
        assert before.pid is not None
        os.kill(before.pid, signal.SIGKILL)
        await until(
            lambda: node_record(supervisor, "tokyo").state == "stopped",
            lambda: f"{node_record(supervisor, 'tokyo')}",
            60,
        )
        told = (await mesh.status())["sites"]["tokyo"]
        assert told["state"] == "stopped"
        assert "isthmus recover" in told["reason"]
        await traffic.more(500)
        code, said = await isthmus(mesh, "recover", "--site", "tokyo")
        assert code == 0, said
        assert "starts the node again" in said
        await mesh.running()
        await traffic.more(500)
        await traffic.end()
        await traffic.arrived(within_s=240)
        # The packer has lost its record too: of what came back to it, it knows no better.
        in_doubt = {"tokyo": doubted(said)}
        traffic.check(lambda site, origin: in_doubt.get(site, 2000 * (origin == "tokyo")))
