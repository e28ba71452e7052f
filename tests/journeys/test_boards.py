"""A mesh in Prometheus: its scrapes are well formed, and boards and alerts find what they show."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from isthmus.page.prometheus import Prometheus
from relay.node.site_folder import ANNOUNCED, site_folder
from scripts.boards import boards
from spark_audit.report.textfile import write_textfile
from tests.deploy.rule_tests import rules
from tests.journeys.conftest import MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.prometheus_server import answer_of, prometheus, served
from tests.spark_audit.report.test_html_report import report_of
from tests.waiting import until

pytestmark = pytest.mark.any_release

SITES = ("paris", "tokyo", "sydney")
WELL = {
    "ALERTS",
    "isthmus_link_ended_sessions_total",
    "isthmus_link_dropped_frames_total",
    "isthmus_link_receiver_dropped_frames_total",
}
"""Series that are not there while all is well."""
WITHIN_S = 60.0
CHOSEN = {"$__rate_interval": "10s", "$from": "paris", "$to": "tokyo"}


def targets(mesh: LiveMesh) -> list[str]:
    """Return the addresses at which the nodes serve their metrics."""
    folders = (site_folder(mesh.state, site) for site in mesh.mesh.sites)
    announced = (json.loads((folder / ANNOUNCED).read_text()) for folder in folders)
    return [f"127.0.0.1:{one['admin_port']}" for one in announced]


def expressions() -> dict[str, str]:
    """Return the expressions of all panels, with what is chosen, by board and title."""
    found = {}
    for name, content in boards().items():
        for panel in json.loads(content)["panels"]:
            for target in panel["targets"]:
                expression = target["expr"]
                for variable, value in CHOSEN.items():
                    expression = expression.replace(variable, value)
                found[f"{name}: {panel['title']} {target['refId']}"] = expression
    return found


async def check_metrics(address: str) -> None:
    """Have promtool look at one scrape."""
    async with aiohttp.ClientSession() as client:
        text = await (await client.get(f"http://{address}/metrics?names=new")).read()
    ended = await asyncio.to_thread(
        subprocess.run, ["promtool", "check", "metrics"], input=text, capture_output=True
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b""), address


@pytest.mark.slow
async def test_scrapes_are_well_formed_and_every_expression_of_boards_and_alerts_is_answered(
    live_mesh: MeshFactory, tmp_path: Path
) -> None:
    mesh = await live_mesh(
        *SITES, topology="complete", lanes=["urgent", "normal"], max_rate="100Mbit/s"
    )
    await mesh.listen()
    mesh.start_each()
    await mesh.running()
    textfile = tmp_path / "isthmus.prom"
    write_textfile(textfile, report_of(), time.time())
    async with mesh.publishing(per_second=50), served(textfile) as exporter:
        for address in targets(mesh):
            await check_metrics(address)
        jobs = {"isthmus": targets(mesh), "node": [exporter]}
        async with prometheus(tmp_path, jobs) as url, aiohttp.ClientSession(url) as client:
            lacking = dict(expressions())

            async def all_answered() -> bool:
                for panel, expression in list(lacking.items()):
                    found = await answer_of(client, "query", query=expression)
                    if found is None:
                        return False
                    if found["result"] or any(name in expression for name in WELL):
                        del lacking[panel]
                return not lacking

            await until(all_answered, lambda: f"no series: {lacking}", WITHIN_S, every_s=0.5)
            await until_the_page_has_lines(Prometheus(url, client))
            await until_rules_are_evaluated(client)
    await mesh.arrived()
    mesh.check()


async def until_the_page_has_lines(prometheus: Prometheus) -> None:
    """Wait until the page would draw each of its lines for a link and a site."""
    chosen = {"links": {"from": "paris", "to": "tokyo"}, "sites": {"site": "paris"}}
    empty: list[str] = []

    async def all_drawn() -> bool:
        hours = [await prometheus.hour(kind, of, time.time()) for kind, of in chosen.items()]
        empty[:] = [
            name
            for hour in hours
            for name, values in hour.items()
            if all(value is None for value in values)
        ]
        return not empty

    await until(all_drawn, lambda: f"no line: {empty}", WITHIN_S, every_s=0.5)


async def until_rules_are_evaluated(client: aiohttp.ClientSession) -> None:
    """Wait until each alert was evaluated; fail if one could not be, or fires in a mesh that is
    well.
    """
    seen: list[dict[str, Any]] = []

    async def are_evaluated() -> bool:
        data = await answer_of(client, "rules")
        seen[:] = [rule for group in data["groups"] for rule in group["rules"]]
        return len(seen) == len(rules()) and all(rule["health"] != "unknown" for rule in seen)

    await until(are_evaluated, lambda: str(seen), WITHIN_S, every_s=0.5)
    assert {rule["name"]: rule.get("lastError") for rule in seen if rule["health"] != "ok"} == {}
    assert [rule["name"] for rule in seen if rule["state"] == "firing"] == []
