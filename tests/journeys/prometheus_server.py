"""Prometheus for tests, beside what it scrapes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from isthmus.brokers.ports import free_ports
from tests.deploy.rule_tests import RULES


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
async def prometheus(
    folder: Path, jobs: dict[str, list[str]], rule_file: Path = RULES
) -> AsyncIterator[str]:
    """Run a Prometheus that scrapes these jobs each second, by default with our rules; yield its
    URL.
    """
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
    document = {"global": often, "rule_files": [str(rule_file)], "scrape_configs": scraped}
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
