"""A mesh file in a folder of its own, and `isthmus up` for the mesh, as a person runs it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.brokers.installation import RabbitMQInstallation
from isthmus.up.supervisor import end_supervisor


@dataclass
class UpMesh:
    """The folder has mesh.yaml and the state folder."""

    folder: Path
    said: str = ""
    """Output of `isthmus up`."""

    async def run(self, command: str, *words: str, state: str = "state") -> tuple[int, str]:
        """Run `isthmus COMMAND mesh.yaml WORDS`; exit status, and all output."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "isthmus", *command.split(), "mesh.yaml", *words),
            *("--state", state),
            cwd=self.folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, said.decode()

    def write(self, text: str) -> None:
        """Replace the mesh file."""
        (self.folder / "mesh.yaml").write_text(text)

    async def pids(self) -> dict[str, tuple[int, int]]:
        """Process IDs of node and broker, by site."""
        code, said = await self.run("status", "--json")
        assert code == 0, said
        told: dict[str, Any] = json.loads(said)
        return {name: (s["node_pid"], s["broker_pid"]) for name, s in told["sites"].items()}

    async def arrives(self, origin: str, destination: str) -> None:
        """Publish again and again, until something of it has come."""
        listening = asyncio.create_task(self.run("consume", destination, "orders", "--count", "1"))
        async with asyncio.timeout(60):
            while not listening.done():
                code, said = await self.run("publish", origin, "orders", "order.new", "hello")
                assert code == 0, said
        code, said = listening.result()
        assert code == 0, said
        assert "hello" in said


@contextlib.asynccontextmanager
async def up_mesh(
    folder: Path, text: str, rabbitmq: RabbitMQInstallation, *words: str
) -> AsyncIterator[UpMesh]:
    """Run `isthmus up` with these words for a mesh file with this text while the block lasts."""
    mesh = UpMesh(folder)
    mesh.write(text)
    try:
        where = str(rabbitmq.chroot or rabbitmq.home)
        code, mesh.said = await mesh.run("up", "--detach", "--rabbitmq", where, *words)
        assert code == 0, mesh.said
        yield mesh
    finally:
        await end_supervisor(folder / "state")
