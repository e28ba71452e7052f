"""The page under hostile input: markup everywhere, garbage at each route, ledgers half written."""

from __future__ import annotations

import json
import random
import re
from datetime import date
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from yarl import URL

from relay.ledger.rows import Stage
from relay.log.open_gap import GoneRange, OpenGap
from relay.operator.gaps import SiteGaps
from spark_audit.generate.generator import generate_ledgers
from spark_audit.period import Period
from tests.isthmus.page.browser import Tab, chromium, tab
from tests.isthmus.page.page_world import PageWorld, page_world, put_aside
from tests.isthmus.test_lost_messages import write

MARKUP = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "\"'><svg onload=alert(3)>",
    "javascript:alert(4)",
    "{{7*7}}${alert(5)}",
    "</title><iframe src=//evil.example>",
    "a\u202eb\u0000c\U0001f600",
)
ROUTES = (
    *("/", "/api/session", "/api/mesh", "/api/drawing", "/api/history", "/api/orders"),
    *("/api/trace", "/api/audits", "/api/outage", "/api/login", "/api/logout", "/health"),
    *("/api/aside/tokyo/quarantine", "/api/aside/tokyo/quarantine/1f", "/static/main.js"),
)
CALM = {200, 400, 401, 403, 404, 405, 411, 413, 414, 415, 429, 431, 503}
"""Answers that are meant; 500 is none of them."""
LEAKS = re.compile(r"Traceback|File \"|\.py\b.*line \d|site-packages")


async def show_markup(world: PageWorld) -> None:
    """Put markup wherever a node, a message or an audit may have some."""
    every = " ".join(MARKUP)
    nodes = world.nodes
    nodes.sites["tokyo"].update(
        state=MARKUP[0],
        reason=every,
        standing_flows={MARKUP[1]: every},
        waiting_exchanges={MARKUP[2]: every},
        not_understood={MARKUP[3]: every},
        nodes={MARKUP[4]: {"state": MARKUP[0], "reason": every}},
    )
    nodes.links["paris-tokyo"].update(state=MARKUP[1], reason=every, lag_seconds=7.0)
    lane = {"state": MARKUP[2], "reason": every}
    nodes.links["tokyo-paris"].update(lanes={MARKUP[0]: lane, "normal": lane})
    fields = {"reason": every, "exchange": MARKUP[0], "routing_key": MARKUP[1], "batch": every}
    nodes.aside["tokyo", "quarantine"] = [
        put_aside("1f", every.encode(), path=[MARKUP[2]], **fields)
    ]
    gone = (GoneRange(MARKUP[0], MARKUP[1], MARKUP[2], 1, 2, 2, 9),)
    gap = OpenGap(Stage.LINKED_OUT, every, 4, 9, 1000, link=MARKUP[3], gone=gone)
    SiteGaps(world.state / "sites" / "tokyo").found(gap)
    (world.state / "audit").mkdir()
    finding = dict.fromkeys(("kind", "identity", "exchange", "origin", "destination", "why"), every)
    report = {"sentence": every, "shown": [finding], "why_not_proven": [every]}
    write(world.state / "audit" / "from=2026-11-21", **report, findings={MARKUP[0]: 3})


async def see_markup_as_text(shown: Tab, view: str, *parts: str) -> None:
    await shown.open(view)
    for part in parts:
        await shown.see(part)


async def test_markup_is_shown_as_text_and_runs_nowhere(tmp_path: Path) -> None:
    async with (
        page_world(tmp_path) as world,
        chromium() as browser,
        tab(browser, world.url) as shown,
    ):
        await show_markup(world)
        await shown.open("mesh")
        await shown.log_in(world.token)
        await see_markup_as_text(shown, "links", *MARKUP[:2])
        await see_markup_as_text(shown, "sites", *MARKUP[:3])
        await see_markup_as_text(shown, "link/paris-tokyo", *MARKUP[:6])
        await see_markup_as_text(shown, "link/tokyo-paris", *MARKUP[:3])
        await see_markup_as_text(shown, "site/tokyo", *MARKUP[:6])
        await shown.press("Look into quarantine")
        await shown.press("1f")
        await shown.see("Message 1f")
        assert MARKUP[1] in await shown.text("pre")
        await see_markup_as_text(shown, "audits", MARKUP[0], f"3 {MARKUP[0]}")
        await shown.open("mesh")
        await shown.page.locator("#graph canvas").first.wait_for()
        for name in MARKUP:
            await shown.page.evaluate("(name) => (location.hash = `site/${name}`)", name)
            await shown.see("There is no site")
        # The tab ends with a complaint if a script of others ran, or another host was asked.
        assert await shown.page.locator("main script, main iframe, main img").count() == 0


@pytest.mark.parametrize("seed", range(4))
async def test_garbage_at_any_route_is_answered_and_leaks_nothing(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    async with page_world(tmp_path) as world:
        for _ in range(120):
            route = draw.choice(ROUTES)
            request: dict[str, Any] = {"headers": headers(draw, world.token)}
            if draw.random() < 0.7:
                request["data"] = garbage(draw)
            url = world.url + route + draw.choice(("", "/..%2f..%2fserver.py", f"?{query(draw)}"))
            method = draw.choice(("GET", "POST", "POST", "PUT", "DELETE", "PATCH", "BREW"))
            async with world.http.request(method, url, **request) as answer:
                text = (await answer.read()).decode(errors="replace")
                assert answer.status in CALM, (method, url, request, text)
            assert not LEAKS.search(text), text
            if route != "/api/session" or answer.status != 200:
                assert world.token not in text
        assert (await world.json("/api/orders"))["orders"] == []
        assert (await world.get("/api/mesh"))[0] == 200


def headers(draw: random.Random, token: str) -> dict[str, str]:
    """Headers of a caller who mostly has the token: others get no further than 401."""
    found = {"Content-Type": draw.choice(("application/json", "application/json", "text/plain"))}
    if draw.random() < 0.8:
        found["Authorization"] = f"Bearer {token}"
    elif draw.random() < 0.2:
        found["Cookie"] = "isthmus_page=" + draw.choice(MARKUP[:2]).replace(";", "")
    if draw.random() < 0.1:
        found["X-CSRF-Token"] = "x" * draw.choice((0, 1, 5000))
    return found


def garbage(draw: random.Random) -> bytes:
    values: list[Any] = [None, 1, True, [], {}, "", "x" * 5000, *MARKUP, ["a"] * 2000, {"a": {}}]
    fields = ("order", "site", "link", "gap", "ids", "aside", "all", "audit", "token", "name")
    fields += ("fail", "for", "rate", "size", "line_rate")
    fields_of = {name: draw.choice(values) for name in draw.sample(fields, draw.randrange(8))}
    kinds = (
        lambda: json.dumps(fields_of).encode(),
        lambda: json.dumps(
            {**fields_of, "order": draw.choice(("drop", "repair", "pause"))}
        ).encode(),
        lambda: json.dumps(draw.choice(values)).encode(),
        lambda: b"[" * 100_000,
        lambda: b'{"a":' * 20_000,
        lambda: draw.randbytes(draw.randrange(2000)),
        lambda: b"x" * (1 << 18),
        lambda: b'{"token": "\xff\xfe"}',
        lambda: b'{"token": "\\ud800", "name": "\\udfff"}',
        lambda: b'{"order": NaN, "site": 1e999}',
    )
    return draw.choice(kinds)()


def query(draw: random.Random) -> str:
    name = draw.choice(("id", "date", "site", "link", "open", "most"))
    value = draw.choice(("", "%00", "%ff%fe", "..%2f..", "%3Cscript%3E", "x" * 4000, "--help"))
    return f"{name}={value}"


async def test_files_beside_the_pages_own_are_not_served(tmp_path: Path) -> None:
    async with page_world(tmp_path) as world:
        for path in (
            *("/static/../routes.py", "/static/%2e%2e/routes.py", "/static/..%2froutes.py"),
            *("/static//etc/passwd", "/static/vendor/../../routes.py", "/static/", "/static/%00"),
        ):
            raw = URL(world.url + path, encoded=True)
            async with world.http.get(raw) as answer:
                assert answer.status in (403, 404), path


async def test_a_ledger_half_written_is_named_and_the_others_searched(tmp_path: Path) -> None:
    hour = Period.of_day(date(2026, 3, 1))
    (lost,) = generate_ledgers(tmp_path / "made", 3, 300, 5, hour, ["lost"], at_rows=64).findings
    copytree(tmp_path / "made" / "sites", tmp_path / "state" / "sites")
    found = sorted((tmp_path / "state" / "sites" / lost.destination).rglob("*.parquet"))
    found[0].write_bytes(found[0].read_bytes()[:100])
    async with page_world(tmp_path, (tmp_path / "made" / "mesh.yaml").read_text()) as world:
        trace = await world.json(f"/api/trace?id={lost.identity}")
        assert any(found[0].name in name for name in trace["unreadable"])
        assert trace["messages"][0]["steps"]
