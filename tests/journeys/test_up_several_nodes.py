"""A site of three nodes that `isthmus up` runs; one is killed, and another takes over."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from isthmus.brokers.installation import RabbitMQInstallation
from isthmus.up.supervisor_record import read_record
from tests.journeys.several_nodes import SiteServers
from tests.journeys.up_mesh import UpMesh, up_mesh
from tests.waiting import until

pytestmark = pytest.mark.long  # two brokers of its own, beside a site's servers

NODES = {"a", "b", "c"}


async def states(up: UpMesh) -> dict[str, str]:
    """State of each node of tokyo."""
    code, said = await up.run("status", "--json")
    assert code in (0, 1), said
    told: dict[str, Any] = json.loads(said)["sites"]["tokyo"]
    return {name: node["state"] for name, node in told.get("nodes", {}).items()}


async def one_runs(up: UpMesh, other_than: str = "") -> str:
    """Wait until one node runs and two stand by; return the running one."""
    found: dict[str, str] = {}

    async def settled() -> bool:
        found.clear()
        found.update(await states(up))
        runs = [name for name, state in found.items() if state == "running"]
        return sorted(found.values()) == ["running", "standby", "standby"] and runs != [other_than]

    await until(settled, lambda: f"one of {NODES} runs: {found}", 90)
    assert found.keys() == NODES
    return next(name for name, state in found.items() if state == "running")


async def test_up_runs_all_nodes_of_a_site_and_starts_a_killed_one_again(
    site_servers: SiteServers, tmp_path: Path, rabbitmq: RabbitMQInstallation
) -> None:
    site = {"nodes": sorted(NODES), "cluster": site_servers.keys}
    text = (
        "mesh: several\ntopology: complete\nexchanges: [{name: orders}]\n"
        f"sites: {json.dumps({'paris': {}, 'tokyo': site})}\n"
    )
    async with up_mesh(tmp_path, text, rabbitmq) as up:
        runs = await one_runs(up)
        record = read_record(tmp_path / "state")
        assert record is not None
        child = record.child("node", f"tokyo.{runs}")
        assert child is not None
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        assert await one_runs(up, other_than=runs) != runs
        up.write(text.replace('"a", ', ""))
        code, said = await up.run("apply")
        assert code == 0, said
        await until(lambda: len_of(tmp_path) == 3, "the node that was taken out has ended", 60)


def len_of(folder: Path) -> int:
    """Number of nodes that the supervisor has."""
    record = read_record(folder / "state")
    assert record is not None
    return sum(child.kind == "node" for child in record.children)
