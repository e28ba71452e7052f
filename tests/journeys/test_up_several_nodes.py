"""A site of three nodes that `isthmus up` runs, with the servers that they share: each kind of
process is killed, and the site goes on.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from isthmus.brokers.installation import RabbitMQInstallation
from isthmus.up.supervisor_record import read_record
from tests.journeys.up_mesh import UpMesh, up_mesh
from tests.waiting import until

pytestmark = pytest.mark.slow

NODES = {"a", "b", "c"}
MESH = """\
mesh: several
topology: complete
exchanges: [{name: orders}]
sites: {paris: {}, tokyo: {nodes: [a, b, c], cluster: {}}}
"""


async def states(up: UpMesh) -> dict[str, str]:
    """State of each node of tokyo."""
    code, said = await up.run("status", "--json")
    assert code in (0, 1), said
    told: dict[str, Any] = json.loads(said)["sites"]["tokyo"]
    return {name: node["state"] for name, node in told.get("nodes", {}).items()}


async def one_runs(up: UpMesh, other_than: str = "", state: str = "running") -> str:
    """Wait until one node is in this state and two stand by; return the first."""
    found: dict[str, str] = {}

    async def settled() -> bool:
        found.clear()
        found.update(await states(up))
        runs = [name for name, one in found.items() if one == state]
        return sorted(found.values()) == [state, "standby", "standby"] and runs != [other_than]

    await until(settled, lambda: f"one of {NODES} runs: {found}", 90)
    assert found.keys() == NODES
    return next(name for name, one in found.items() if one == state)


async def test_up_runs_all_nodes_of_a_site_with_the_servers_that_they_share(
    tmp_path: Path, rabbitmq: RabbitMQInstallation
) -> None:
    async with up_mesh(tmp_path, MESH, rabbitmq) as up:
        runs = await one_runs(up)
        assert await holds_the_slot(tmp_path) == {name: name == runs for name in NODES}
        await copies_are_followed(tmp_path)
        await until(lambda: nodes_are_well(up), "doctor finds nothing about the nodes", 60)
        await up.arrives("paris", "tokyo")
        before = signal_to(tmp_path, "node", f"tokyo.{runs}", signal.SIGKILL)
        await until(
            lambda: is_back(tmp_path, "node", f"tokyo.{runs}", before),
            "the killed node is begun again",
            60,
        )
        # The killed one may be back so soon that it still has the site; a frozen one is not.
        frozen = await one_runs(up)
        signal_to(tmp_path, "node", f"tokyo.{frozen}", signal.SIGSTOP)
        later = await one_runs(up, other_than=frozen)
        assert later != frozen
        assert await holds_the_slot(tmp_path) == {name: name == later for name in NODES}
        await copies_are_followed(tmp_path)
        for server in ("zookeeper", "cassandra"):
            before = signal_to(tmp_path, "server", server, signal.SIGKILL)
            await until(
                lambda server=server, before=before: is_back(tmp_path, "server", server, before),
                f"{server} is begun again",
                120,
            )
        assert await one_runs(up) == later
        later = await orders_go_to_the_next_node(up, later)
        await up.arrives("paris", "tokyo")
        up.write(MESH.replace("a, ", ""))
        code, said = await up.run("apply")
        assert code == 0, said
        await until(lambda: len_of(tmp_path) == 3, "the node that was taken out has ended", 60)
        record = read_record(tmp_path / "state")
        assert record is not None
        marks = record.child_marks()
        assert all(mark.is_alive for mark in marks)
    assert not any(mark.is_alive for mark in marks)


async def orders_go_to_the_next_node(up: UpMesh, runs: str) -> str:
    """Pause the site, have another node take it over, and resume; return the node that runs."""
    code, said = await up.run("pause", "--site", "tokyo")
    assert (code, said) == (0, "tokyo: paused\n")
    await orders_are_refused_elsewhere(up, runs)
    signal_to(up.folder, "node", f"tokyo.{runs}", signal.SIGSTOP)
    later = await one_runs(up, other_than=runs, state="paused")
    code, said = await up.run("resume", "--site", "tokyo")
    assert (code, said) == (0, "tokyo: goes on\n")
    assert await one_runs(up) == later
    return later


async def orders_are_refused_elsewhere(up: UpMesh, runs: str) -> None:
    """Order on a machine of which the node stands by, by its folder alone."""
    stands_by = min(NODES - {runs})
    elsewhere = up.folder / "elsewhere/sites/tokyo/nodes" / stands_by
    shutil.copytree(up.folder / "state/sites/tokyo/nodes" / stands_by, elsewhere)
    for command in (("pause", "--site", "tokyo"), ("drain", "tokyo"), ("accept-gap", "tokyo")):
        code, said = await up.run(*command, state="elsewhere")
        assert code == 1
        assert f"standing by: {runs} runs the site; run this on the machine of that node" in said


def signal_to(folder: Path, kind: str, name: str, number: int) -> int:
    """Send a signal to a child of the supervisor; return its process ID."""
    record = read_record(folder / "state")
    assert record is not None
    child = record.child(kind, name)
    assert child is not None
    assert child.pid is not None
    os.kill(child.pid, number)
    return child.pid


def is_back(folder: Path, kind: str, name: str, former: int) -> bool:
    record = read_record(folder / "state")
    assert record is not None
    child = record.child(kind, name)
    assert child is not None
    return child.state == "running" and child.pid not in (None, former)


async def metrics(folder: Path, node: str) -> dict[str, float]:
    """Metrics of a node of tokyo by name, without their labels."""
    where = json.loads((folder / f"state/sites/tokyo/nodes/{node}/node.json").read_text())
    async with aiohttp.ClientSession(f"http://127.0.0.1:{where['admin_port']}") as client:
        lines = (await (await client.get("/metrics?names=new")).text()).splitlines()
    named = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name.partition("{")[0]: float(value) for name, _, value in named}


async def holds_the_slot(folder: Path) -> dict[str, bool]:
    """Check each node's metrics; return True for the node that has the site."""
    found = {}
    for node in NODES:
        has = await metrics(folder, node)
        found[node] = has["isthmus_slot_held"] == 1
        if found[node]:
            assert has["isthmus_site_takeovers_total"] > 0
            assert has["isthmus_slot_journal_rows_total"] > 0
            assert has["isthmus_slot_epoch"] > 0
            assert has["isthmus_slot_waiting_bytes"] < 2**20
            assert has["isthmus_slot_journal_away_seconds"] == 0
        else:
            assert "isthmus_site_takeovers_total" in has
    return found


async def copies_are_followed(folder: Path) -> None:
    """Wait until each node that stands by tells of a copy that has the journal's end."""
    found: dict[str, dict[str, float]] = {}

    async def are_followed() -> bool:
        found.update({node: await metrics(folder, node) for node in sorted(NODES)})
        copies = [has for has in found.values() if not has["isthmus_slot_held"]]
        return len(copies) == len(NODES) - 1 and all(
            has.get("isthmus_copy_row", 0) > 0 and has["isthmus_copy_followed_seconds"] < 10
            for has in copies
        )

    await until(are_followed, lambda: f"two copies are followed: {found}", 60)


async def nodes_are_well(up: UpMesh) -> bool:
    """True if `isthmus doctor` has nothing to say of the site's servers and nodes."""
    _, said = await up.run("doctor", "--site", "tokyo", "--json")
    by_subject = {one["subject"]: one for one in json.loads(said)["findings"]}
    subjects = ("ZooKeeper", "Cassandra", "commit log", "keyspace", "nodes")
    return all(by_subject[one]["grade"] == "ok" for one in subjects) and not by_subject.keys() & {
        *("schema", "copies", "journal", "cluster", "locks")
    }


def len_of(folder: Path) -> int:
    """Number of nodes that the supervisor has."""
    record = read_record(folder / "state")
    assert record is not None
    return sum(child.kind == "node" for child in record.children)
