"""Lines of the last hour from a Prometheus."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from isthmus.page.history import EVERY_S, POINTS
from isthmus.page.prometheus import Prometheus, PrometheusAway
from isthmus.page.server import PageOptions
from tests.deploy.series_names import names_in, series_names
from tests.isthmus.page.page_world import page_world

NOW = 1_764_000_005.0


class FakePrometheus:
    """Answers of a Prometheus: `answer` is what it gives to each query."""

    def __init__(self) -> None:
        self.queries: list[str] = []
        self.url = ""
        self.answer: Any = {"status": "success", "data": {"result": []}}

    async def range(self, request: web.Request) -> web.Response:
        self.queries.append(request.query["query"])
        return web.Response(text=json.dumps(self.answer), content_type="application/json")


@pytest.fixture
async def server() -> AsyncIterator[FakePrometheus]:
    fake = FakePrometheus()
    app = web.Application()
    app.router.add_get("/api/v1/query_range", fake.range)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield fake
    await runner.cleanup()


async def test_a_line_has_a_point_every_ten_seconds(server: FakePrometheus) -> None:
    values = [[NOW - 5, "3.5"], [NOW - 15, "NaN"]]
    server.answer = {"status": "success", "data": {"result": [{"metric": {}, "values": values}]}}
    async with aiohttp.ClientSession() as session:
        labels = {"from": 'pa"ris', "to": "tokyo"}
        hour = await Prometheus(server.url + "/", session).hour("links", labels, NOW)
    assert (len(hour["seconds"]), hour["seconds"][-1]) == (POINTS, NOW - 5)
    assert hour["seconds"][-1] - hour["seconds"][-2] == EVERY_S
    assert hour["lag_s"][-3:] == [None, None, 3.5]
    assert r'max(isthmus_link_lag_seconds{from="pa\"ris",to="tokyo"})' in server.queries


async def test_each_query_is_of_series_that_nodes_serve(server: FakePrometheus) -> None:
    async with aiohttp.ClientSession() as session:
        prometheus = Prometheus(server.url, session)
        await prometheus.hour("links", {"from": "paris", "to": "tokyo"}, NOW)
        await prometheus.hour("sites", {"site": "paris"}, NOW)
    assert len(server.queries) == 8
    for query in server.queries:
        assert names_in(query) <= series_names()


@pytest.mark.parametrize(
    "answer",
    [
        {"status": "error", "error": "no such function"},
        {"status": "success"},
        [],
        {"status": "success", "data": {"result": [{"values": [["x"]]}]}},
        {"status": "success", "data": {"result": [{"values": [[NOW - 5, "many"]]}]}},
    ],
)
async def test_an_answer_that_is_none_counts_as_away(server: FakePrometheus, answer: Any) -> None:
    server.answer = answer
    async with aiohttp.ClientSession() as session:
        with pytest.raises(PrometheusAway, match=server.url):
            await Prometheus(server.url, session).hour("sites", {"site": "paris"}, NOW)


async def test_the_page_takes_its_lines_from_prometheus(
    tmp_path: Path, server: FakePrometheus
) -> None:
    options = PageOptions(port=0, prometheus=server.url)
    async with page_world(tmp_path, options=options) as world:
        async with world.http.get(f"{world.url}/api/events") as events:
            await events.content.readline()
        hour = await world.json("/api/history?site=paris")
        assert (hour["source"], hour["why"], len(hour["egress"])) == ("prometheus", "", POINTS)
        assert 'max(isthmus_site_egress_messages{site="paris"})' in server.queries
