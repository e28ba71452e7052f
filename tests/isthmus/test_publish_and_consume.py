"""`isthmus publish` and `consume` at a broker: what they bind, and what they say of a refusal."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import aio_pika
import pytest

from tests.federation.live_site import mesh_file_on
from tests.live_brokers import Vhost

pytestmark = pytest.mark.any_release

FILE = """\
mesh: MESH
topology: complete
exchanges:
  - {name: orders, keys: ["order.#"]}
  - {name: tasks, type: direct, keys: [mail, print]}
sites: {paris: {}, tokyo: {}}
"""


@pytest.fixture
async def file(vhost: Vhost, tmp_path: Path) -> Path:
    """A mesh whose private broker at paris is that virtual host, with its exchanges."""
    file, _ = await mesh_file_on(vhost, "paris", FILE, tmp_path)
    async with await aio_pika.connect(vhost.amqp_uri) as connection:
        channel = await connection.channel()
        await channel.declare_exchange("orders", "topic", durable=True)
        await channel.declare_exchange("tasks", "direct", durable=True)
        full = {"x-max-length": 0, "x-overflow": "reject-publish"}
        await (await channel.declare_queue("full", arguments=full)).bind("orders", "#")
    return file


async def begun(file: Path, command: str, *words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "isthmus", command, str(file), "paris", *words),
        *("--state", str(file.parent / "state")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def ended(process: asyncio.subprocess.Process) -> tuple[int, str, str]:
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_a_refusal_does_not_say_that_nobody_has_it(file: Path) -> None:
    code, out, err = await ended(await begun(file, "publish", "orders", "invoice.new", "x"))
    assert (code, out) == (1, "")
    assert "warning: no key of orders takes 'invoice.new' out of the site" in err
    assert "refused it (nack)" in err
    assert "may have it all the same" in err


async def test_of_a_direct_exchange_its_keys_are_listened_for(file: Path) -> None:
    consumer = await begun(file, "consume", "tasks", "--count", "2")
    assert consumer.stderr is not None
    async with asyncio.timeout(60):
        assert await consumer.stderr.readline() == b"listening to tasks for mail, print\n"
    for key in ("mail", "print"):
        assert (await ended(await begun(file, "publish", "tasks", key, "hello")))[0] == 0
    code, out, _ = await ended(consumer)
    assert (code, out) == (0, "[here] mail: hello\n[here] print: hello\n")
