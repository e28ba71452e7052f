"""The page's figures over HTTP: the view, its changes, the graph, the hour."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp

from isthmus.page.access import CSRF_HEADER
from isthmus.page.routes import STATIC
from isthmus.page.server import PageOptions
from isthmus.up.supervised import ANNOUNCED_PAGE
from tests.certificates import Authority
from tests.federation.meshes import TRIANGLE
from tests.isthmus.page.page_world import PageWorld, log_in, page_world

VENDORED = re.compile(
    r"^\| `([^`]+)` \| ([^|]+) \| \[MIT\]\(([^)]+)\) \| `([0-9a-f]{64})` \|$", re.M
)
WITHIN_S = 15.0


async def events(world: PageWorld) -> AsyncIterator[dict[str, Any]]:
    """Events that the page's server sends, one after the other."""
    async with world.http.get(f"{world.url}/api/events") as answer:
        async for line in answer.content:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


async def event(
    stream: AsyncIterator[dict[str, Any]], is_it: Callable[[dict[str, Any]], Any]
) -> dict[str, Any]:
    """The next event of which `is_it` is true."""
    async with asyncio.timeout(WITHIN_S):
        async for one in stream:
            if is_it(one):
                return one
    raise AssertionError("the stream of events has ended")


async def test_the_first_event_has_all_and_later_ones_what_has_changed(tmp_path: Path) -> None:
    async with page_world(tmp_path) as world:
        stream = events(world)
        first = await anext(stream)
        assert (first["mesh"], len(first["sites"]), len(first["links"])) == ("acme", 3, 6)
        await event(stream, lambda one: not one["links"])  # rates are known by now
        world.nodes.links["paris-tokyo"].update(state="down", reason="nothing heard for 11 s")
        change = await event(stream, lambda one: one["links"])
        assert list(change["links"]) == ["paris-tokyo"]
        assert change["links"]["paris-tokyo"]["reason"] == "nothing heard for 11 s"
        assert change["sites"] == {}


async def test_a_site_that_leaves_the_file_is_gone(tmp_path: Path) -> None:
    text = TRIANGLE.replace("topology: ring\nboth: true", "topology: complete")
    async with page_world(tmp_path, text) as world:
        stream = events(world)
        await anext(stream)
        world.file.write_text(text.replace(", sydney: {}", ""))
        change = await event(stream, lambda one: one["gone_sites"])
        assert change["gone_sites"] == ["sydney"]
        assert len(change["gone_links"]) == 4


async def test_a_faulty_file_is_named_and_the_mesh_goes_on(tmp_path: Path) -> None:
    async with page_world(tmp_path) as world:
        stream = events(world)
        await anext(stream)
        world.file.write_text("mesh: [")
        change = await event(stream, lambda one: one["notes"])
        assert "mesh.yaml" in change["notes"][0]
        assert change["gone_sites"] == []


async def test_a_file_that_is_gone_is_named_and_the_mesh_goes_on(tmp_path: Path) -> None:
    async with page_world(tmp_path) as world:
        stream = events(world)
        await anext(stream)
        world.file.unlink()
        change = await event(stream, lambda one: one["notes"] or one["problem"])
        assert "mesh.yaml" in " ".join([*change["notes"], change["problem"]])
        world.file.write_text(TRIANGLE)
        assert await event(stream, lambda one: not one["notes"] and not one["problem"])


async def test_a_silent_node_is_down_with_its_reason(tmp_path: Path) -> None:
    async with page_world(tmp_path) as world:
        stream = events(world)
        await anext(stream)
        (world.state / "sites" / "paris" / "node.json").write_text('{"pid": 1, "admin')
        change = await event(stream, lambda one: "paris" in one["sites"])
        assert change["sites"]["paris"]["state"] == "down"
        assert "never started" in change["sites"]["paris"]["reason"]


async def test_the_hour_of_a_link_begins_with_the_page(tmp_path: Path) -> None:
    async with page_world(tmp_path) as world:
        await anext(events(world))
        hour = await world.json("/api/history?link=paris-tokyo")
        assert (hour["source"], hour["lag_s"], len(hour["seconds"])) == ("page", [0.0], 1)
        assert (await world.get("/api/history?site=atlantis"))[0] == 404
        assert (await world.get("/api/history"))[0] == 400


async def test_while_prometheus_is_away_the_page_shows_its_own_lines(tmp_path: Path) -> None:
    options = PageOptions(port=0, prometheus="http://127.0.0.1:1")
    async with page_world(tmp_path, options=options) as world:
        await anext(events(world))
        hour = await world.json("/api/history?link=paris-tokyo")
        assert (hour["source"], hour["lag_s"]) == ("page", [0.0])
        assert "Prometheus at http://127.0.0.1:1 does not answer" in hour["why"]


async def test_the_graph_is_drawn_by_the_server(tmp_path: Path) -> None:
    async with page_world(tmp_path) as world:
        drawing = await world.json("/api/drawing?open=nothing")
        assert len(drawing["spots"]) == 3


async def test_the_page_announces_its_port(tmp_path: Path) -> None:
    async with page_world(tmp_path) as world:
        announced = json.loads((world.state / ANNOUNCED_PAGE).read_text())
        assert world.url.endswith(f":{announced['admin_port']}")
        async with aiohttp.ClientSession() as http, http.get(f"{world.url}/health") as answer:
            assert (await answer.json())["pid"] == announced["pid"]


def test_vendored_files_are_those_of_the_table() -> None:
    folder = STATIC / "vendor"
    rows = VENDORED.findall((folder / "README.md").read_text())
    assert {name for name, *_ in rows} == {
        file.name for file in folder.iterdir() if file.suffix in (".js", ".css")
    }
    for name, _, licence, digest in rows:
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
        assert "Permission is hereby granted" in (folder / licence).read_text()


def test_no_script_of_ours_writes_markup_or_asks_another_host() -> None:
    for file in STATIC.glob("*.js"):
        text = file.read_text()
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in text, f"{file.name}: {word}"
        assert not re.search(r"https?://(?!www\.w3\.org/)", text), file.name
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|https?://", page)


async def test_a_report_of_another_kind_is_named_and_the_page_goes_on(tmp_path: Path) -> None:
    async with page_world(tmp_path) as world:
        stream = events(world)
        await anext(stream)
        state = world.nodes.sites["paris"].pop("state")
        change = await event(stream, lambda one: one["problem"])
        assert "a node's report cannot be read: KeyError('state')" in change["problem"]
        world.nodes.sites["paris"]["state"] = state
        assert await event(stream, lambda one: not one["problem"])


async def test_the_events_of_a_session_end_with_it(tmp_path: Path) -> None:
    authority = Authority("us")
    certificate, key = authority.issues().write(tmp_path, "page")
    options = PageOptions("0.0.0.0", 0, str(certificate), str(key))
    async with page_world(tmp_path, options=options) as world:
        world.url = world.url.replace("0.0.0.0", "127.0.0.1")
        trust = ssl.create_default_context(cadata=authority.certificate.decode())
        await log_in(world, ssl=trust)
        async with world.http.get(f"{world.url}/api/events", ssl=trust) as answer:
            assert (await answer.content.readline()).startswith(b"data: ")
            session = json.loads((await world.get("/api/session", ssl=trust))[1])
            headers = {CSRF_HEADER: session["csrf"]}
            assert (await world.post("/api/logout", {}, headers=headers, ssl=trust))[0] == 200
            async with asyncio.timeout(WITHIN_S):
                await answer.content.read()  # until its end
