"""A mesh in Prometheus: its scrapes are well formed, and boards and alerts find what they show."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web

from isthmus.brokers.ports import free_ports
from relay.node.site_folder import ANNOUNCED, site_folder
from scripts.boards import boards
from spark_audit.report.textfile import write_textfile
from tests.deploy.rule_tests import RULES, rules
from tests.journeys.conftest import MeshFactory
from tests.journeys.live_mesh import LiveMesh
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


@asynccontextmanager
async def served(file: Path) -> AsyncIterator[str]:
    """Serve a file as /metrics, as node exporter does; yield the address."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=file.read_text())

    app = web.Application()
    app.router.add_get("/metrics", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def prometheus(folder: Path, jobs: dict[str, list[str]]) -> AsyncIterator[str]:
    """Run a Prometheus that scrapes these jobs each second, with our rules; yield its URL."""
    scraped = [
        {
            "job_name": job,
            "params": {"names": ["new"]},
            "static_configs": [{"targets": addresses}],
        }
        for job, addresses in jobs.items()
    ]
    often = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    file, [port] = folder / "prometheus.yml", free_ports(1)
    document = {"global": often, "rule_files": [str(RULES)], "scrape_configs": scraped}
    file.write_text(yaml.safe_dump(document))
    command = ["setpriv", "--pdeathsig", "KILL", "--", "prometheus", f"--config.file={file}"]
    command += [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        async with asyncio.timeout(20):
            await process.wait()


async def answer_of(client: aiohttp.ClientSession, path: str, **params: str) -> Any:
    """Return the data of one answer of Prometheus's API; None while it does not listen."""
    try:
        async with client.get(f"/api/v1/{path}", params=params) as response:
            answer = await response.json()
    except aiohttp.ClientConnectionError:
        return None
    assert answer["status"] == "success", (params, answer)
    return answer["data"]


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
            await until_rules_are_evaluated(client)
    await mesh.arrived()
    mesh.check()


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
