"""Commands that the page runs: their results, their limits, and their end."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from isthmus.page import command_run
from isthmus.page.command_run import CommandUnfinished, run_command
from isthmus.processes import descendants
from tests.federation.meshes import TRIANGLE
from tests.waiting import until


def left() -> list[int]:
    """Processes of ours that run the command of these tests."""
    found = []
    for one in descendants(os.getpid()):
        try:
            command = Path(f"/proc/{one.pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"--watch" in command and one.is_alive:
            found.append(one.pid)
    return found


@pytest.fixture
def endless(tmp_path: Path) -> list[str]:
    """Words of a command that ends only when it is told to."""
    (tmp_path / "mesh.yaml").write_text(TRIANGLE)
    words = ["status", str(tmp_path / "mesh.yaml"), "--watch", "--json"]
    return [*words, f"--state={tmp_path}"]


async def test_a_result_has_status_output_and_errors(tmp_path: Path) -> None:
    result = await run_command(["status", "/nowhere/mesh.yaml", f"--state={tmp_path}"], 30)
    assert result.status == 2
    assert "/nowhere/mesh.yaml" in result.text


async def test_a_command_that_takes_too_long_is_ended(endless: list[str]) -> None:
    with pytest.raises(CommandUnfinished, match=r"took longer than 0\.3 s, and was ended"):
        await run_command(endless, 0.3)
    assert left() == []


async def test_a_command_that_prints_too_much_is_ended(
    endless: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_run, "MOST_OUTPUT", 100)
    with pytest.raises(CommandUnfinished, match="printed more than 100 bytes"):
        await run_command(endless, 30)
    assert left() == []


async def test_a_command_ends_with_its_caller(endless: list[str]) -> None:
    running = asyncio.create_task(run_command(endless, 30))
    await until(left, "the command runs", 10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert left() == []
