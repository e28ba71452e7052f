"""Changes of a site's slots under load: nothing lost, nothing twice unflagged, order kept."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from relay.state.flow_state import ANNOUNCED_AT_MOST
from spark_audit.job import Audit
from spark_audit.period import Period
from spark_audit.report.report import AuditVerdict
from tests.journeys.conftest import LoadedMeshFactory, LoadFactory, MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.load import Load
from tests.journeys.several_nodes import SiteServers
from tests.journeys.supervised_mesh import isthmus
from tests.journeys.test_slots import now_ms

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
    mesh.document["sites"][site] = keys
    mesh.write()
    await mesh.apply()
    mesh.start([site])
    await mesh.running()


def prove(spark: Any, mesh: LiveMesh, begin_ms: int) -> None:
    """End all nodes, and have the audit prove what was delivered since then."""
    period = Period(begin_ms, now_ms() + 1)
    for site in SITES:
        assert mesh.stop(site) == 0
    report = Audit(spark, mesh.mesh, str(mesh.state / "sites"), period).run()
    assert report.verdict is AuditVerdict.PROVEN, (report.as_json(), report.why_not_proven)


@pytest.mark.spark
async def test_slots_are_changed_under_load_and_the_audit_proves_that_nothing_was_lost(
    spark: Any, loaded_mesh: LoadedMeshFactory
) -> None:
    begin = now_ms()
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
    prove(spark, mesh, begin)


async def test_slots_are_not_changed_while_a_neighbour_lags_and_the_site_goes_on(
    loaded_mesh: LoadedMeshFactory,
) -> None:
    mesh, traffic = await loaded_mesh(*SITES, **RING)
    code, said = await isthmus(mesh, "pause", "--link", "paris-tokyo")
    assert code == 0, said
    await traffic.more(300)
    code, said = await isthmus(mesh, "reslot", "paris", "--slots", "4", "--within", "10s")
    assert code == 1
    assert "it is not quiet within 10s" in said
    assert "that tokyo does not have yet" in said
    assert "it goes on as before" in said
    code, said = await isthmus(mesh, "resume", "--link", "paris-tokyo")
    assert code == 0, said
    await mesh.running()
    assert mesh.stop("paris") == 0
    code, said = await isthmus(mesh, "reslot", "paris", "--slots", "4")
    assert code == 1
    assert "slot 0 did not end quiesced: start the node with the former slots" in said
    mesh.start(["paris"])
    await mesh.running()
    await traffic.end()
    await traffic.arrived()
    traffic.check(lambda site, origin: 0)


@pytest.mark.spark
@pytest.mark.long
async def test_slots_of_nodes_that_share_them_are_changed_and_the_states_come_back_to_one_node(
    spark: Any, tmp_path: Path, live_mesh: MeshFactory, load: LoadFactory
) -> None:
    begin = now_ms()
    async with SiteServers.started(tmp_path, 1) as servers:
        mesh = await live_mesh(*SITES, **RING)
        mesh.start_each()
        await mesh.running()
        traffic = load(mesh, per_second=30)
        await traffic.start()
        await traffic.more(300)
        shared = {"nodes": ["a", "b"], "cluster": servers.keys}
        mesh.document["sites"]["paris"] = shared
        mesh.write()
        assert mesh.stop("paris") == 0
        await done(mesh, "cluster", "begin", site="paris")
        await nodes_share(mesh, traffic, shared)
        await cut_shared(mesh, traffic, shared | {"slots": 4, "place": {"orders": 2, "prices": 3}})
        await cut_shared(mesh, traffic, shared | {"slots": 1})
        for node in ("a", "b"):
            assert mesh.stop(f"paris/{node}") == 0
        await done(mesh, "cluster", "end", site="paris")
        mesh.document["sites"]["paris"] = {}
        mesh.write()
        mesh.start(["paris"])
        await mesh.running()
        await traffic.more(300)
        await traffic.end()
        await traffic.arrived(within_s=120)
        # A state that another node goes on with is as after a power cut.
        traffic.check(
            lambda site, origin: 4 * ANNOUNCED_AT_MOST if "paris" in (site, origin) else 0
        )
        prove(spark, mesh, begin)


async def done(mesh: LiveMesh, *command: str, site: str) -> None:
    """Run a command about the site."""
    words = [*command, str(mesh.file), "--site", site, "--state", str(mesh.state)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "isthmus", *words, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()


async def nodes_share(mesh: LiveMesh, traffic: Load, keys: dict[str, Any]) -> None:
    """Have both nodes serve the site with these keys, under load."""
    mesh.document["sites"]["paris"] = keys
    mesh.write()
    await mesh.apply()
    for node in ("a", "b"):
        mesh.start_node("paris", node)
    await mesh.running()
    await traffic.more(300)


async def cut_shared(mesh: LiveMesh, traffic: Load, keys: dict[str, Any]) -> None:
    """Have nodes that share the site's slots run with other ones."""
    places = [f"--place={name}={at}" for name, at in keys.get("place", {}).items()]
    async with reslotting(mesh, "paris", "--slots", str(keys["slots"]), *places):
        for node in ("a", "b"):
            assert mesh.stop(f"paris/{node}") == 0
    await nodes_share(mesh, traffic, keys)
