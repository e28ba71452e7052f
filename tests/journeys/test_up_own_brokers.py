"""`isthmus up` of sites that have brokers of their own, where nobody has applied yet."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from isthmus.brokers.config import BrokerUser
from isthmus.up.supervisor import end_supervisor
from tests.conftest import VhostFactory
from tests.live_brokers import Vhost


def of_site(site: str, vhost: Vhost, more: str = "") -> str:
    return (
        f"{site}: {{broker: 'amqp://{vhost.user}@{vhost.host}:{vhost.amqp_port}/{vhost.name}', "
        f"stream: 'rabbitmq-stream://{vhost.host}:{vhost.stream_port}', "
        f"password: 'env:{site.upper()}_PASSWORD'{more}}}"
    )


@dataclass
class Folder:
    path: Path

    async def begin(self, *words: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "isthmus", *words),
            cwd=self.path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=os.environ,
        )


@pytest.fixture
async def folder(
    tmp_path: Path, vhost_factory: VhostFactory, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Folder]:
    """Paris has a management API, tokyo has none."""
    vhosts = {site: await vhost_factory(site) for site in ("paris", "tokyo")}
    paris = vhosts["paris"]
    await paris.add_user(BrokerUser(paris.user, paris.password, ("administrator",)))
    for site, vhost in vhosts.items():
        monkeypatch.setenv(f"{site.upper()}_PASSWORD", vhost.password)
    sites = ", ".join(
        (
            of_site("paris", paris, f", management: '{paris.management_url}'"),
            of_site("tokyo", vhosts["tokyo"]),
        )
    )
    (tmp_path / "mesh.yaml").write_text(
        f"mesh: {paris.name}\ntopology: complete\nexchanges: [{{name: orders}}]\n"
        f"sites: {{{sites}}}\n"
    )
    yield Folder(tmp_path)
    await end_supervisor(tmp_path / "state")


async def test_up_applies_where_it_can_and_says_at_once_what_to_run_elsewhere(
    folder: Folder,
) -> None:
    up = await folder.begin("up", "mesh.yaml", "--detach", "--state", "state")
    assert up.stdout is not None
    said = ""
    async with asyncio.timeout(150):
        while not (told := re.search(r"tokyo: .*run `isthmus (apply .*?)`", said)):
            line = (await up.stdout.readline()).decode()
            assert line, said
            said += line
        apply = await folder.begin(*shlex.split(told[1]))
        applied, _ = await apply.communicate()
        assert apply.returncode == 0, applied.decode()
        rest, _ = await up.communicate()
    assert up.returncode == 0, said + rest.decode()
    assert re.search(r"paris: \d+ changed", said + rest.decode())
    assert "2 sites and 2 links run" in rest.decode()
