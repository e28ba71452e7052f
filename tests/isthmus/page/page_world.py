"""A page over a mesh whose nodes are one small HTTP server with reports that a test may change."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from federation.mesh_file import read_mesh
from isthmus.page.access import CSRF_HEADER
from isthmus.page.gatherer import MeshOfFile
from isthmus.page.server import TOKEN_FILE, PageOptions, PageServer
from relay.operator.gaps import SiteGaps, read_open_gaps
from relay.operator.holds import read_holds
from tests.federation.meshes import TRIANGLE

ADMIN_TOKEN = "the token of the node"


def site_report(**more: Any) -> dict[str, Any]:
    """Report of a node about a site at rest."""
    counts = ("egress_messages", "undelivered_messages", "delivered", "duplicates", "redelivered")
    waiting = ("unrouted", "expired", "dead_letters_waiting", "quarantine_waiting")
    figures = dict.fromkeys((*counts, *waiting), 0)
    return {"state": "running", "reason": "", "gaps": [], **figures, **more}


def link_report(sender: str, receiver: str, **more: Any) -> dict[str, Any]:
    """Report of a node about a link at rest."""
    lag = {"lag_messages": 0, "lag_bytes": 0, "lag_seconds": 0.0}
    acked = {"acked_messages": 0, "acked_bytes": 0, "round_trip_s": 0.02, "clock_ahead_ms": 1}
    window = {"window_used_bytes": 0, "window_bytes": 8 << 20}
    ends = {"from": sender, "to": receiver}
    return {**ends, "state": "running", "reason": "", **lag, **acked, **window, **more}


@dataclass
class FakeNodes:
    """One process that serves all sites of a mesh file. `sites` and `links` are the reports; of
    `aside` each queue is by site and name; orders of the state folder show in the reports.
    """

    state: Path
    sites: dict[str, dict[str, Any]]
    links: dict[str, dict[str, Any]]
    aside: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)
    """Messages a second, of 1,000 bytes each, that a link carries."""
    done: list[tuple[str, str, Any]] = field(default_factory=list)
    """Requests that changed something: site, what, and the selection."""

    async def start(self, parts: AsyncExitStack) -> None:
        app = web.Application()
        app.router.add_get("/status", self._status)
        app.router.add_get("/sites/{site}/{queue}", self._look)
        app.router.add_post("/sites/{site}/{queue}/{action}", self._do)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        parts.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        announced = json.dumps({"pid": os.getpid(), "admin_port": runner.addresses[0][1]})
        for site in self.sites:
            folder = self.state / "sites" / site
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "node.json").write_text(announced)
            (folder / "admin.token").write_text(ADMIN_TOKEN)

    async def _status(self, request: web.Request) -> web.Response:
        sites, links = dict(self.sites), dict(self.links)
        for link, rate in self.busy.items():
            acked = int(rate * time.monotonic())
            counts = {"acked_messages": acked, "acked_bytes": 1000 * acked}
            links[link] = {**links[link], **counts, "window_used_bytes": int(rate * 100)}
        for name in sites:
            sites[name] = {**sites[name], "gaps": self._gaps(name)}
            holds = read_holds(self.state / "sites" / name)
            if holds.paused or holds.draining:
                word = "draining" if holds.draining else "paused"
                sites[name] = {**sites[name], "state": word}
            for link in holds.links & links.keys():
                links[link] = {**links[link], "state": "paused"}
        content = {"pid": os.getpid(), "sites": sites, "links": list(links.values())}
        return web.json_response(content)

    def _gaps(self, site: str) -> list[dict[str, Any]]:
        """Gaps of a site that nobody has accepted; the others are passed."""
        gaps = SiteGaps(self.state / "sites" / site)
        gaps.load()
        found = read_open_gaps(self.state / "sites" / site)
        for gap in found:
            if accepted := gaps.accepted(gap.key):
                self.done.append((site, "gap", accepted.by))
                gaps.passed(accepted)
        return [gap.as_json() for gap in read_open_gaps(self.state / "sites" / site)]

    def _queue(self, request: web.Request) -> tuple[str, str, list[dict[str, Any]]]:
        assert request.headers["Authorization"] == f"Bearer {ADMIN_TOKEN}"
        site, queue = request.match_info["site"], request.match_info["queue"]
        return site, queue, self.aside.setdefault((site, queue), [])

    async def _look(self, request: web.Request) -> web.Response:
        _, _, messages = self._queue(request)
        shown = messages[: int(request.query.get("most", 2000))]
        if "bodies" not in request.query:
            shown = [{k: v for k, v in one.items() if k != "body_base64"} for one in shown]
        return web.json_response({"total": len(messages), "messages": shown})

    async def _do(self, request: web.Request) -> web.Response:
        site, queue, messages = self._queue(request)
        selection = await request.json()
        action = request.match_info["action"]
        self.done.append((site, f"{queue}/{action}", selection))
        chosen = [one for one in messages if selection.get("all") or one["id"] in selection["ids"]]
        messages[:] = [one for one in messages if one not in chosen]
        lines = [{"id": one["id"], "outcome": "sent", "said": ""} for one in chosen]
        return web.Response(text="".join(json.dumps(line) + "\n" for line in lines))


def put_aside(id_: str, body: bytes = b"hello", **more: Any) -> dict[str, Any]:
    """A message as a node reports it."""
    return {
        "id": id_,
        "reason": "refused 5 times",
        "attempts": 5,
        "exchange": "orders",
        "routing_key": "order.new",
        "bytes": len(body),
        "path": ["paris", "tokyo"],
        "batch": "paris/00/orders.0>*/7",
        "identity": "00" * 16,
        "published_ms": 1_764_000_000_000,
        "properties_base64": "",
        "body_base64": base64.b64encode(body).decode(),
        **more,
    }


@dataclass
class PageWorld:
    """A page that is served, with its mesh file, state folder and nodes."""

    file: Path
    state: Path
    nodes: FakeNodes
    url: str
    http: aiohttp.ClientSession

    @property
    def token(self) -> str:
        return (self.state / TOKEN_FILE).read_text()

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    async def get(self, path: str, **options: Any) -> tuple[int, str]:
        async with self.http.get(f"{self.url}{path}", **options) as answer:
            return answer.status, await answer.text()

    async def post(self, path: str, content: Any, **options: Any) -> tuple[int, str]:
        async with self.http.post(f"{self.url}{path}", json=content, **options) as answer:
            return answer.status, await answer.text()

    async def json(self, path: str) -> Any:
        """The JSON that a program with the token gets."""
        status, text = await self.get(path, headers=self.bearer)
        assert status == 200, text
        return json.loads(text)


@asynccontextmanager
async def page_world(
    folder: Path, text: str = TRIANGLE, options: PageOptions | None = None
) -> AsyncIterator[PageWorld]:
    """A page of the mesh of that text, at a free port of loopback unless `options` differ."""
    file, state = folder / "mesh.yaml", folder / "state"
    file.write_text(text)
    mesh = read_mesh(file).mesh
    assert mesh is not None
    links = {
        f"{link.sender}-{link.receiver}": link_report(link.sender, link.receiver)
        for link in mesh.links
    }
    nodes = FakeNodes(state, {site: site_report() for site in mesh.sites}, links)
    async with AsyncExitStack() as parts:
        await nodes.start(parts)
        http = await parts.enter_async_context(
            aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))
        )
        server = PageServer(MeshOfFile(file, state, mesh), options or PageOptions(port=0))
        url = await server.start(parts)
        yield PageWorld(file, state, nodes, url.rstrip("/"), http)


async def csrf_of(world: PageWorld, **options: Any) -> str:
    """The CSRF token of the world's client."""
    return str(json.loads((await world.get("/api/session", **options))[1])["csrf"])


async def log_in(world: PageWorld, token: str = "", **options: Any) -> tuple[int, str]:
    """Log in as a browser does; the cookie stays with the world's client."""
    headers = {CSRF_HEADER: await csrf_of(world, **options)}
    fields = {"token": token or world.token, "name": "ann"}
    return await world.post("/api/login", fields, headers=headers, **options)
