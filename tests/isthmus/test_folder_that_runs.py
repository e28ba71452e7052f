"""Choice of the node that takes an order: of those on this machine, the node that runs the site."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from isthmus.node_client import NodeAway, folder_that_runs

AnsweringNode = Callable[[str, str, str], Awaitable[Path]]


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[AnsweringNode]:
    """Call with a node's name, the state that it reports of paris, and the reason."""
    servers: list[TestServer] = []

    async def start(name: str, state: str, reason: str) -> Path:
        async def status(_: web.Request) -> web.Response:
            own = {"state": state, "reason": reason}
            return web.json_response({"pid": 1, "sites": {"paris": own}})

        app = web.Application()
        app.router.add_get("/status", status)
        servers.append(TestServer(app))
        await servers[-1].start_server()
        return announced(tmp_path, name, admin_port=servers[-1].port)

    yield start
    for server in servers:
        await server.close()


def announced(state: Path, name: str, **content: object) -> Path:
    folder = state / "sites" / "paris" / "nodes" / name
    folder.mkdir(parents=True)
    (folder / "node.json").write_text(json.dumps({"pid": 1, "admin_port": 1, **content}))
    (folder / "admin.token").write_text("t")
    return folder


async def test_a_site_with_one_node_has_its_own_folder(tmp_path: Path) -> None:
    assert await folder_that_runs(tmp_path, "paris") == tmp_path / "sites" / "paris"


async def test_the_node_that_runs_takes_the_order(tmp_path: Path, node: AnsweringNode) -> None:
    await node("a", "standby", "standing by: b runs the site")
    runs = await node("b", "paused", "")
    announced(tmp_path, "c", stopped="its state is damaged")
    assert await folder_that_runs(tmp_path, "paris") == runs


async def test_a_node_that_stands_by_names_the_one_that_runs(
    tmp_path: Path, node: AnsweringNode
) -> None:
    await node("a", "standby", "standing by: far-b runs the site")
    announced(tmp_path, "c", stopped="its state is damaged")
    with pytest.raises(NodeAway, match="far-b runs the site; run this on the machine of that node"):
        await folder_that_runs(tmp_path, "paris")


async def test_a_node_that_answers_for_another_folder_takes_no_order(
    tmp_path: Path, node: AnsweringNode
) -> None:
    former = await node("a", "running", "")
    now = await node("b", "running", "")
    (former / "node.json").write_text(
        json.dumps({**json.loads((now / "node.json").read_text()), "pid": 2})
    )
    assert await folder_that_runs(tmp_path, "paris") == now


async def test_where_all_have_stopped_one_of_them_takes_the_order(tmp_path: Path) -> None:
    announced(tmp_path, "a")
    stopped = announced(tmp_path, "b", stopped="gap: its log has lost what it needs")
    assert await folder_that_runs(tmp_path, "paris") == stopped


async def test_where_none_runs_the_mend_is_said(tmp_path: Path) -> None:
    announced(tmp_path, "a")
    with pytest.raises(NodeAway, match="none of its nodes runs here: run this where one does"):
        await folder_that_runs(tmp_path, "paris")
