"""Clients that know nothing of the mesh: Debian's amqp-tools, and Celery."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.journeys.conftest import MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.waiting import until

CELERY = Path(__file__).parents[2] / "examples" / "celery"


async def ran(*command: str, stdin: bytes = b"", **how: Any) -> bytes:
    """What the command printed; it must end well within a minute."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        **how,
    )
    try:
        async with asyncio.timeout(180):
            out, errors = await process.communicate(stdin)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, f"{command}: {errors.decode()}"
    return out


async def uri(mesh: LiveMesh, site: str) -> str:
    """As a user gets it."""
    command = (sys.executable, "-m", "isthmus", "uri", str(mesh.file), site)
    return (await ran(*command, "--state", str(mesh.state))).decode().strip()


async def bound(mesh: LiveMesh, site: str, exchange: str, key: str) -> bool:
    """Whether a queue that is not ours is bound so."""
    where = f"/exchanges/{{vhost}}/{exchange}/bindings/source"
    return any(
        binding["routing_key"] == key and not binding["destination"].startswith("isthmus.")
        for binding in await mesh.vhosts[site].api("GET", where)
    )


async def test_amqp_publish_and_amqp_consume_work_across_sites(
    live_mesh: MeshFactory,
) -> None:
    mesh = await live_mesh("paris", "tokyo", "sydney", topology="ring")
    mesh.start()
    await mesh.running()
    addresses = {site: await uri(mesh, site) for site in mesh.mesh.sites}

    def consume(site: str, key: str, count: int) -> asyncio.Task[bytes]:
        command = ("amqp-consume", f"--url={addresses[site]}", "-e", "orders", "-r", key)
        return asyncio.create_task(ran(*command, f"--count={count}", "cat"))

    all_of_them = {site: consume(site, "order.#", 102) for site in ("tokyo", "sydney")}
    one_kind = consume("sydney", "order.*.urgent", 1)
    for site, key in (("tokyo", "order.#"), ("sydney", "order.#"), ("sydney", "order.*.urgent")):
        await until(lambda s=site, k=key: bound(mesh, s, "orders", k), key, 120)

    publish = ("amqp-publish", f"--url={addresses['paris']}", "-e", "orders")
    await ran(*publish, "-r", "order.new", "-p", "-b", "first;")
    lines = "".join(f"{n};\n" for n in range(100))
    await ran(*publish, "-r", "order.many", "-l", "-C", "text/plain", stdin=lines.encode())
    await ran(*publish, "-r", "order.new.urgent", "-H", "why: late", "-b", "last;")

    expected = ["first", *map(str, range(100)), "last", ""]
    for site, consumed in all_of_them.items():
        got = (await consumed).decode().replace("\n", "").split(";")
        assert got == expected, site
    assert await one_kind == b"last;"


@contextlib.asynccontextmanager
async def celery_worker(address: str, log: Path) -> AsyncIterator[None]:
    """An ordinary worker of the example, as its README starts it."""
    command = ("celery", "-A", "reports", "worker", "--loglevel", "INFO", "--concurrency", "1")
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *("setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-m", *command),
            cwd=CELERY,
            env={**os.environ, "REPORTS_BROKER": address, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=out,
            stderr=out,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            async with asyncio.timeout(20):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


@pytest.mark.slow
async def test_a_celery_task_sent_at_one_site_runs_once_in_a_worker_at_another(
    live_mesh: MeshFactory, tmp_path: Path
) -> None:
    declared = yaml.safe_load((CELERY / "mesh.yaml").read_text())
    mesh = await live_mesh(
        *declared["sites"], topology=declared["topology"], exchanges=declared["exchanges"]
    )
    mesh.start()
    await mesh.running()
    log = tmp_path / "worker.log"
    async with celery_worker(await uri(mesh, "tokyo"), log):
        await until(lambda: " ready." in log.read_text(), log.read_text, 180)
        environment = {**os.environ, "REPORTS_BROKER": await uri(mesh, "paris")}
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        send = (sys.executable, "send.py", "sales", "stock")
        sent = await ran(*send, cwd=CELERY, env=environment)
        # The same task sent again, as Celery does by itself when a connection breaks.
        again = (
            "from reports import make\n"
            "for _ in range(3): make.apply_async(['staff'], task_id='the same')\n"
            "make.delay('the end')"
        )
        await ran(sys.executable, "-c", again, cwd=CELERY, env=environment)
        made = "'the report on {} is made'"
        await until(lambda: made.format("the end") in log.read_text(), log.read_text, 180)
        told = log.read_text()
        assert [told.count(made.format(title)) for title in ("sales", "stock", "staff")] == [1] * 3
        for task in sent.decode().replace("sent", "").split():
            assert f"Task reports.make[{task}] succeeded" in told
    # The sender's broker was left as the mesh made it: no queue of Celery's that fills up there.
    queues = [queue["name"] for queue in await mesh.vhosts["paris"].api("GET", "/queues/{vhost}")]
    assert [name for name in queues if not name.startswith("isthmus.")] == []
