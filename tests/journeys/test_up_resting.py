"""A site whose nodes rest, and whose slots change, while `isthmus up` runs the rest of a mesh."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from isthmus.brokers.installation import RabbitMQInstallation
from isthmus.up.supervisor_record import read_record
from tests.journeys.up_mesh import UpMesh, up_mesh
from tests.waiting import until

pytestmark = (
    pytest.mark.long
)  # a minute and a half, with brokers, a ZooKeeper and a Cassandra of its own

MESH = """\
mesh: rests
topology: complete
exchanges: [{name: orders}, {name: prices}]
sites: {paris: {}, tokyo: {nodes: [a, b], cluster: {}}}
"""
CUT = MESH.replace("tokyo: {", "tokyo: {slots: 2, ")
ALONE = CUT.replace("nodes: [a, b], cluster: {}", "")


async def tokyo(up: UpMesh) -> dict[str, Any]:
    """Report of the site that rests."""
    code, said = await up.run("status", "--json")
    assert code in (0, 1), said
    found: dict[str, Any] = json.loads(said)["sites"]["tokyo"]
    return found


def running(folder: Path) -> set[str]:
    """Children of the supervisor that run."""
    record = read_record(folder / "state")
    assert record is not None
    return {f"{one.kind} {one.name}" for one in record.children if one.state == "running"}


async def test_slots_and_servers_of_a_site_change_while_up_runs_the_rest(
    tmp_path: Path, rabbitmq: RabbitMQInstallation
) -> None:
    async with up_mesh(tmp_path, MESH, rabbitmq) as up:
        await up.arrives("paris", "tokyo")
        nodes = {"node tokyo.a", "node tokyo.b"}
        await until(lambda: nodes < running(tmp_path), "both nodes run", 60)
        every = running(tmp_path)

        up.write(MESH.replace("mesh: rests", "mesh: other"))
        code, said = await up.run("down", "--site", "tokyo")
        assert code == 1
        assert "the nodes of tokyo go on: the supervisor did not take up the file" in said
        assert running(tmp_path) == every
        up.write(MESH)

        reslotting = asyncio.create_task(up.run("reslot", "tokyo", "--slots", "2"))
        await until(lambda: is_quiesced(up), "tokyo is quiesced", 90)
        code, said = await up.run("down", "--site", "tokyo")
        assert code == 0, said
        assert running(tmp_path) == every - nodes
        code, said = await reslotting
        assert code == 0, said
        assert "isthmus down mesh.yaml --site tokyo" in said
        assert "`isthmus up --detach` starts it again" in (await tokyo(up))["reason"]

        up.write(CUT)
        code, said = await up.run("up", "--detach")
        assert code == 0, said
        await until(lambda: running(tmp_path) == every, "everything runs again", 60)
        await up.arrives("paris", "tokyo")
        await up.arrives("tokyo", "paris")

        code, said = await up.run("down", "--site", "tokyo")
        assert code == 0, said
        code, said = await up.run("cluster end", "--site", "tokyo")
        assert code == 0, said
        up.write(ALONE)
        code, said = await up.run("up", "--detach")
        assert code == 0, said
        alone = {"broker paris", "broker tokyo", "node paris", "node tokyo"}
        await until(lambda: running(tmp_path) == alone, "one node runs, and no server", 60)
        await up.arrives("paris", "tokyo")


async def is_quiesced(up: UpMesh) -> bool:
    return (await tokyo(up))["state"] == "quiesced"
