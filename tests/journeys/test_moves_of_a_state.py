"""A site's state goes into a cluster of two nodes and back, while applications publish."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.journeys.conftest import LoadFactory, MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.several_nodes import NODES, SITE, SiteServers

pytestmark = pytest.mark.long


def isthmus(mesh: LiveMesh, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command about the mesh's site in the middle."""
    command = [sys.executable, "-m", "isthmus", *arguments, "--site", SITE]
    command += ["--state", str(mesh.state)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def moves(mesh: LiveMesh, way: str) -> None:
    done = isthmus(mesh, "cluster", way, str(mesh.file))
    assert done.returncode == 0, done.stderr
    assert "keys moved" in done.stdout


def is_refused(mesh: LiveMesh, reason: str, *arguments: str) -> None:
    done = isthmus(mesh, *arguments)
    assert done.returncode in (1, 3), (done.returncode, done.stdout)
    assert reason in done.stderr


@pytest.mark.parametrize("slots", [1, 3])
async def test_a_site_gets_several_nodes_and_has_one_again_and_loses_nothing(
    slots: int, site_servers: SiteServers, live_mesh: MeshFactory, load: LoadFactory
) -> None:
    alone: dict[str, Any] = {"slots": slots}
    sites: dict[str, Any] = {"paris": {}, SITE: alone, "sydney": {}}
    mesh = await live_mesh(*sites, topology={"hub": SITE}, sites=sites)
    mesh.start_each()
    await mesh.running()
    traffic = load(mesh, per_second=250.0)
    await traffic.start()
    await traffic.more(3_000)

    mesh.document["sites"] = {
        **sites,
        SITE: {**alone, "nodes": NODES, "cluster": site_servers.keys},
    }
    mesh.write()
    file = str(mesh.file)
    is_refused(mesh, "in use by process", "cluster", "begin", file)
    assert mesh.stop(SITE) == 0
    is_refused(mesh, "`isthmus cluster begin", "relay", file, "--node", NODES[0])
    moves(mesh, "begin")
    for node in NODES:
        mesh.start_node(SITE, node)
    await mesh.node_that_runs(SITE)
    await traffic.more(3_000)
    is_refused(mesh, "end all nodes of the site first", "cluster", "end", file)

    mesh.document["sites"] = sites
    mesh.write()
    is_refused(mesh, "its state has moved into a cluster", "relay", file)
    is_refused(mesh, "and is not lost", "recover", file)
    mesh.document["sites"] = {
        **sites,
        SITE: {**alone, "nodes": NODES, "cluster": site_servers.keys},
    }
    mesh.write()
    for node in NODES:
        assert mesh.stop(f"{SITE}/{node}") == 0
    moves(mesh, "end")
    is_refused(mesh, "the state of its one node is in", "relay", file, "--node", NODES[0])

    mesh.document["sites"] = sites
    mesh.write()
    mesh.start([SITE])
    await mesh.running()
    await traffic.more(3_000)
    await traffic.end()
    await traffic.arrived(within_s=120)
    # A state that has moved is as after a power cut: what was not acknowledged is in doubt.
    traffic.check(lambda site, origin: 512 if SITE in (site, origin) else 0)
