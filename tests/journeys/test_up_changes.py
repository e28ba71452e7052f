"""A mesh that `isthmus up` runs, and that grows and shrinks by one site."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from isthmus.rabbitmq_install import RabbitMQInstallation
from isthmus.supervisor import end_supervisor

pytestmark = pytest.mark.long  # three brokers of its own

TWO = """\
mesh: grows
topology: custom
links: [{from: paris, to: tokyo, both: true}]
exchanges: [{name: orders}]
sites: {paris: {}, tokyo: {}}
"""
THREE = TWO.replace("custom\nlinks: [{from: paris, to: tokyo, both: true}]", "ring").replace(
    "tokyo: {}}", "tokyo: {}, lima: {}}"
)


@dataclass
class UpMesh:
    folder: Path

    async def run(self, command: str, *words: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "isthmus", command, "mesh.yaml", *words),
            *("--state", "state"),
            cwd=self.folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, said.decode()

    def write(self, text: str) -> None:
        (self.folder / "mesh.yaml").write_text(text)

    async def pids(self) -> dict[str, tuple[int, int]]:
        code, said = await self.run("status", "--json")
        assert code == 0, said
        told: dict[str, Any] = json.loads(said)
        return {name: (s["node_pid"], s["broker_pid"]) for name, s in told["sites"].items()}


@pytest.fixture
async def up(tmp_path: Path, rabbitmq: RabbitMQInstallation) -> AsyncIterator[UpMesh]:
    """Two sites, up."""
    mesh = UpMesh(tmp_path)
    mesh.write(TWO)
    try:
        where = str(rabbitmq.chroot or rabbitmq.home)
        code, said = await mesh.run("up", "--detach", "--rabbitmq", where)
        assert code == 0, said
        yield mesh
    finally:
        await end_supervisor(tmp_path / "state")


async def test_apply_has_up_start_and_end_what_the_file_says_and_leave_the_rest(
    up: UpMesh,
) -> None:
    before = await up.pids()
    up.write(THREE)
    code, said = await up.run("apply")
    assert "+ site lima" in said
    assert "starting the brokers of lima" in said
    code, said = await up.run("up", "--detach")
    assert "3 sites and 3 links run" in said
    grown = await up.pids()
    assert {name: grown[name] for name in before} == before

    up.write(THREE + "sitse: {}\n")
    code, said = await up.run("apply")
    assert code == 2
    up.write(THREE.replace("mesh: grows", "mesh: other"))
    code, said = await up.run("apply")
    assert code == 2
    assert "a mesh cannot change its name" in said

    up.write(TWO)
    code, said = await up.run("apply")
    assert "- site lima" in said
    assert "lima is taken out of the mesh without having been drained" in said
    code, said = await up.run("up", "--detach")
    assert await up.pids() == before
