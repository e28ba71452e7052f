"""`isthmus page` as a person starts and ends it."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import sys
from pathlib import Path
from urllib.request import urlopen

from typer.testing import CliRunner

from isthmus.cli import app
from tests.federation.meshes import TRIANGLE


async def test_the_command_serves_until_it_is_told_to_end(tmp_path: Path) -> None:
    file, state = tmp_path / "mesh.yaml", tmp_path / "state"
    file.write_text(TRIANGLE)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "isthmus", "page", str(file)),
        *("--state", str(state), "--listen", "127.0.0.1:0"),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(30):
            line = (await process.stderr.readline()).decode()
        found = re.match(r"mesh acme is at (http://127\.0\.0\.1:\d+/), Ctrl-C ends it", line)
        assert found is not None, line
        health = await asyncio.to_thread(lambda: urlopen(f"{found[1]}health").read())
        assert json.loads(health) == {"pid": process.pid}
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(15):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def test_a_port_that_is_taken_and_an_address_without_tls_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mesh.yaml").write_text(TRIANGLE)
    words = ["page", str(tmp_path / "mesh.yaml"), "--state", str(tmp_path / "state"), "--listen"]
    result = CliRunner().invoke(app, [*words, "0.0.0.0:0"])
    assert result.exit_code == 1
    assert "the page wants TLS" in result.output
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = CliRunner().invoke(app, [*words, f"127.0.0.1:{taken.getsockname()[1]}"])
    assert result.exit_code == 1
    assert "say --listen with another address or port" in result.output


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mesh.yaml").write_text(TRIANGLE)
    for listen in ("8642", "127.0.0.1:", "127.0.0.1:99999", ":1"):
        words = ["page", str(tmp_path / "mesh.yaml"), "--listen", listen]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 2
        assert "say HOST:PORT" in result.output
