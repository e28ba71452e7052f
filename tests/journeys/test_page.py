"""The page over a mesh on real brokers."""

from __future__ import annotations

import json
import re
import time
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from isthmus.brokers.installation import RabbitMQInstallation
from isthmus.page.gatherer import MeshOfFile
from isthmus.page.server import PageOptions, PageServer
from tests.isthmus.page.browser import chromium, tab
from tests.journeys.conftest import MeshFactory
from tests.journeys.up_mesh import up_mesh
from tests.waiting import until
from wan_proxy import LAN

PAIR = ("paris", "tokyo")
RUNNING = dict.fromkeys(PAIR, "running")
SHOWN_WITHIN_S = 15.0
MESH = (
    "mesh: seen\ntopology: complete\nexchanges: [{name: orders}]\nsites: {paris: {}, tokyo: {}}\n"
)


@pytest.mark.slow
@pytest.mark.any_release
async def test_a_link_that_is_cut_is_shown_in_a_browser_within_fifteen_seconds(
    live_mesh: MeshFactory,
) -> None:
    mesh = await live_mesh(*PAIR, wan={PAIR: LAN, PAIR[::-1]: LAN}, topology="complete")
    mesh.start_each()
    await mesh.running()
    async with AsyncExitStack() as parts:
        source = MeshOfFile(mesh.file, mesh.state, mesh.mesh)
        url = await PageServer(source, PageOptions(port=0)).start(parts)
        browser = await parts.enter_async_context(chromium())
        shown = await parts.enter_async_context(tab(browser, url.rstrip("/")))
        await shown.open("links")
        await shown.see("running", "tbody tr:nth-child(2)")
        assert "down" not in await shown.text("tbody")
        mesh.lines[PAIR].cut()
        cut_at = time.monotonic()
        await shown.see("down", "tbody tr:first-child")
        assert time.monotonic() - cut_at < SHOWN_WITHIN_S
        row = await shown.text("tbody tr:first-child")
        assert "paris → tokyo" in row
        assert "heard" in row  # the reason
        mesh.lines[PAIR].heal()
        await shown.see("running", "tbody tr:first-child")


@pytest.mark.slow
async def test_up_serves_the_page_until_down(
    tmp_path: Path, rabbitmq: RabbitMQInstallation
) -> None:
    async with up_mesh(tmp_path, MESH, rabbitmq, "--page") as up, aiohttp.ClientSession() as http:
        found = re.search(r"the page is at (http://127\.0\.0\.1:\d+/)", up.said)
        assert found is not None, up.said

        async def all_run() -> bool:
            async with http.get(f"{found[1]}api/mesh") as answer:
                sites = json.loads(await answer.text())["sites"]
            return {name: one["state"] for name, one in sites.items()} == RUNNING

        await until(all_run, "the page shows that all sites run", 15)
        code, said = await up.run("down")
        assert code == 0, said
        with pytest.raises(aiohttp.ClientError):
            await http.get(found[1])
