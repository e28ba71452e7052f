"""A mesh that changes while it runs, under load: no loss, no duplicate, no node begun anew."""

from __future__ import annotations

from typing import Any

from tests.journeys.conftest import LoadedMeshFactory
from tests.journeys.live_mesh import LiveMesh

SITES = ("paris", "tokyo", "lima")


def pair(one: str, other: str) -> dict[str, Any]:
    return {"from": one, "to": other, "both": True}


def pids(told: dict[str, Any]) -> dict[str, int]:
    return {name: site["node_pid"] for name, site in told["sites"].items()}


async def change(mesh: LiveMesh, **document: Any) -> None:
    """The file says so from now on: applied, and taken up by every node; links run again."""
    mesh.document |= document
    mesh.write()
    await mesh.apply()
    revision = mesh.mesh.revision
    await mesh.until_told(
        lambda told: all(site.get("revision") == revision for site in told["sites"].values()),
        f"all nodes have revision {revision}",
    )
    await mesh.running()


async def test_links_come_and_go_under_load(loaded_mesh: LoadedMeshFactory) -> None:
    mesh, load = await loaded_mesh(
        *SITES, topology="custom", links=[pair("paris", "tokyo"), pair("tokyo", "lima")]
    )
    before = pids(await mesh.status())
    await load.more(300)
    await change(mesh, links=[pair("paris", "tokyo"), pair("tokyo", "lima"), pair("lima", "paris")])
    await load.more(300)
    await change(mesh, links=[pair("tokyo", "lima"), pair("lima", "paris")])
    await load.more(300)
    await change(mesh, topology="complete", links=[])
    await load.more(300)
    await load.end()
    await load.arrived()
    load.check()
    assert pids(await mesh.status()) == before
