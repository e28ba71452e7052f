"""Commands for a site whose broker cannot be reached: they say so and leave things as they are."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from isthmus.brokers.ports import free_ports

FILE = """\
mesh: acme
topology: complete
exchanges: [{name: orders}]
sites:
  paris: {broker: "amqp://u@127.0.0.1:PORT/v", password: "env:PARIS_PASSWORD"}
  tokyo: {}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (port,) = free_ports(1)
    file = tmp_path / "mesh.yaml"
    file.write_text(FILE.replace("PORT", str(port)))
    return file


async def run(file: Path, command: str, **environ: str) -> tuple[int | None, str]:
    """Its exit status, and what it says on standard error."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "isthmus", command, str(file), "--site", "paris"),
        *("--state", str(file.parent / "state")),
        env=os.environ | environ,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(60):
            _, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, said.decode()


async def test_a_node_without_its_password_ends_with_a_reason(file: Path) -> None:
    code, said = await run(file, "relay")
    assert code == 3
    assert "paris: no password in the environment variable PARIS_PASSWORD: it is not set" in said
    assert "Traceback" not in said


async def test_a_recovery_that_cannot_begin_puts_no_state_aside(file: Path) -> None:
    state = file.parent / "state" / "sites" / "paris" / "state"
    state.mkdir(parents=True)
    code, said = await run(file, "recover", PARIS_PASSWORD="secret")
    assert code == 1
    assert "not recovered: " in said
    assert [one.name for one in state.parent.iterdir()] == ["state"]
