"""Sites of several nodes in `isthmus status`, and for commands that ask the running node."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from isthmus.node_client import NodeAway, NodeClient
from isthmus.status import status_of
from relay.node.site_slots import node_of_slots
from tests.federation.meshes import TRIANGLE, mesh_of
from tests.isthmus.test_status_tables import site, tables_text

CLUSTER = "{nodes: [a, b, c], cluster: {zookeeper: z:1, cassandra: {hosts: c:1}}}"
MESH = mesh_of(TRIANGLE.replace("paris: {}", f"paris: {CLUSTER}"))
CUT = mesh_of(TRIANGLE.replace("paris: {}", f"paris: {CLUSTER[:-1]}, slots: 3}}"))
SLOT = {"epoch": 3, "rows": 1200, "waiting_bytes": 0, "journal_away_s": None}


class _Nodes:
    """Admin ports of the nodes of paris, as their folders have them."""

    def __init__(self, state: Path, servers: AsyncExitStack) -> None:
        self.state = state
        self._servers = servers
        self.asked: list[str] = []

    async def add(self, name: str, **report: Any) -> None:
        """Serve the report of a node; none: the node has ended."""
        folder = self.state / "sites" / "paris" / "nodes" / name
        folder.mkdir(parents=True)
        (folder / "admin.token").write_text(name)
        port = await self._serve(name, report) if report else 1
        (folder / "node.json").write_text(json.dumps({"pid": os.getpid(), "admin_port": port}))

    async def serve_far(self, port: int, host: str, **report: Any) -> int:
        """Serve the report of a node whose folder is not here."""
        return await self._serve(host, report, host, port)

    async def _serve(
        self, name: str, report: dict[str, Any], host: str = "127.0.0.1", port: int = 0
    ) -> int:
        async def status(_: web.Request) -> web.Response:
            return web.json_response({"pid": os.getpid(), "sites": {"paris": report}, "links": []})

        async def dead(request: web.Request) -> web.Response:
            self.asked.append(request.headers["Authorization"])
            if report["state"] == "standby":
                return web.Response(status=503, text="the node is starting: try again")
            return web.json_response({"total": 0})

        async def dies(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b'{"done": 1}\n')
            assert request.transport is not None
            request.transport.abort()
            return response

        app = web.Application()
        app.router.add_post("/sites/paris/dies", dies)
        app.router.add_get("/status", status)
        app.router.add_get("/sites/paris/dead", dead)
        runner = web.AppRunner(app)
        await runner.setup()
        self._servers.push_async_callback(runner.cleanup)
        listener = web.TCPSite(runner, host, port)
        await listener.start()
        serving: int = runner.addresses[0][1]
        return serving


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[_Nodes]:
    async with AsyncExitStack() as servers:
        yield _Nodes(tmp_path, servers)


def standby() -> dict[str, Any]:
    return site(state="standby", reason="standing by: b runs the site")


async def test_the_running_node_speaks_for_its_site(nodes: _Nodes) -> None:
    await nodes.add("a", **standby())
    await nodes.add("b", **site(delivered=7, slot=SLOT))
    await nodes.add("c")
    paris = (await status_of(MESH, nodes.state)).content["sites"]["paris"]
    assert (paris["state"], paris["delivered"]) == ("running", 7)
    assert {name: node["state"] for name, node in paris["nodes"].items()} == {
        "a": "standby",
        "b": "running",
        "c": "down",
    }
    assert paris["nodes"]["b"]["held"] == [SLOT]
    assert paris["nodes"]["c"]["reason"] == "the node does not answer"


async def test_a_node_that_has_the_site_speaks_for_it_also_while_its_broker_is_away(
    nodes: _Nodes,
) -> None:
    await nodes.add("a", **standby())
    await nodes.add("b", **site(state="down", reason="log: the broker is away", slot=SLOT))
    paris = (await status_of(MESH, nodes.state)).content["sites"]["paris"]
    assert (paris["state"], paris["reason"]) == ("down", "log: the broker is away")


async def test_a_site_whose_nodes_all_stand_by_does_not_run(nodes: _Nodes) -> None:
    await nodes.add("a", **site(state="standby", reason="connecting to Cassandra: nobody"))
    report = await status_of(MESH, nodes.state)
    assert report.content["sites"]["paris"]["state"] == "standby"
    assert not report.all_running


async def test_commands_ask_the_running_node(nodes: _Nodes) -> None:
    await nodes.add("a", **standby())
    await nodes.add("b", **site())
    await nodes.add("c", **standby())
    client = NodeClient.of(nodes.state, "paris")
    assert [answer async for answer in client.get("dead")] == [{"total": 0}]
    assert nodes.asked == ["Bearer b"]


async def test_a_node_that_dies_amid_its_answer_is_away(nodes: _Nodes) -> None:
    await nodes.add("b", **site())
    answers = NodeClient.of(nodes.state, "paris").post("dies", {})
    assert await anext(answers) == {"done": 1}
    with pytest.raises(NodeAway, match="paris: its node does not answer here"):
        await anext(answers)


async def test_commands_say_where_the_node_runs_that_could_answer(nodes: _Nodes) -> None:
    await nodes.add("a", **standby())
    with pytest.raises(NodeAway, match="standing by: b runs the site; run this on the machine of"):
        await anext(NodeClient.of(nodes.state, "paris").get("dead"))
    with pytest.raises(NodeAway, match="tokyo: its node does not answer here"):
        NodeClient.of(nodes.state, "tokyo")


async def test_nodes_that_share_slots_are_one_site(nodes: _Nodes) -> None:
    stands = {**site(state="standby", reason="why", copy={"row": 1, "followed_s": 0.2})}
    one = site(delivered=3, slot=SLOT, orders_kept=True)
    other = site(delivered=4, slot=SLOT)
    await nodes.add("a", **node_of_slots([one, stands, stands]))
    await nodes.add("b", **node_of_slots([stands, other, other]))
    paris = (await status_of(CUT, nodes.state)).content["sites"]["paris"]
    assert (paris["state"], paris["delivered"]) == ("running", 11)
    assert [slot["delivered"] for slot in paris["slots"]] == [3, 4, 4]
    assert {name: node["slots"] for name, node in paris["nodes"].items()} == {
        "a": [0],
        "b": [1, 2],
    }
    assert paris["nodes"]["a"]["copy"]["followed_s"] == 0.2


async def test_a_site_with_a_slot_that_nobody_runs_stands_by(nodes: _Nodes) -> None:
    stands = site(state="standby", reason="standing by: nobody runs slot 2")
    await nodes.add("a", **node_of_slots([site(slot=SLOT), site(slot=SLOT), stands]))
    report = await status_of(CUT, nodes.state)
    paris = report.content["sites"]["paris"]
    assert paris["state"] == "standby"
    assert paris["reason"] == "slot 2: standing by: nobody runs slot 2"
    assert not report.all_running


async def test_commands_ask_every_node_that_runs_a_slot(nodes: _Nodes) -> None:
    stands = site(state="standby", reason="standing by: far runs slot 2")
    await nodes.add("a", **node_of_slots([site(), stands, stands]))
    await nodes.add("b", **node_of_slots([stands, site(), stands]))
    found = []
    with pytest.raises(NodeAway, match="not of slot 2: its node here is standing by: far runs"):
        found += [answer async for answer in NodeClient.of(nodes.state, "paris").get("dead")]
    assert nodes.asked == ["Bearer a", "Bearer b"]


async def test_nodes_of_other_machines_are_asked_at_the_addresses_of_the_file(
    nodes: _Nodes,
) -> None:
    port = await nodes.serve_far(0, "127.0.0.2", **site(delivered=7, slot=SLOT))
    await nodes.serve_far(port, "127.0.0.3", **standby())
    paris = MESH.sites["paris"]
    group = replace(paris.nodes, names=("2", "3", "4")) if paris.nodes else None
    far = replace(paris, admin=f"http://127.0.0.{{node}}:{port}", nodes=group)
    mesh = replace(MESH, sites={**MESH.sites, "paris": far})
    found = (await status_of(mesh, nodes.state)).content["sites"]["paris"]
    assert (found["state"], found["delivered"]) == ("running", 7)
    assert {name: node["state"] for name, node in found["nodes"].items()} == {
        "2": "running",
        "3": "standby",
        "4": "down",
    }
    assert "nobody answers at http://127.0.0.4" in found["nodes"]["4"]["reason"]


def test_the_table_has_the_nodes_of_sites_that_have_several() -> None:
    away = {**SLOT, "journal_away_s": 12.3, "waiting_bytes": 4096}
    found = {
        "a": {"state": "running", "reason": "", "slots": [0], "held": [SLOT]},
        "b": {
            "state": "standby",
            "reason": "standing by: a runs the site",
            "slots": [],
            "held": [],
        },
        "c": {"state": "running", "reason": "", "slots": [0], "held": [away]},
    }
    text = tables_text({"paris": site(nodes=found), "tokyo": site()}, width=120)
    for words in (
        "epoch 3, 1200 rows of journal",
        "standing by: a runs the site",
        "no Cassandra for 12 s, 4,096 bytes wait",
    ):
        assert words in text
    assert "nodes" not in tables_text({"tokyo": site()})
