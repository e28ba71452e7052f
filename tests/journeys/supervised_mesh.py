"""The nodes of a mesh under the supervisor of `isthmus up`, in this process."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from isthmus.up.supervised import NodeProcess
from isthmus.up.supervisor import NODE_POLICY, ChildPlan, Supervisor
from isthmus.up.supervisor_record import ChildRecord
from tests.journeys.live_mesh import LiveMesh


def _site_node(mesh_file: Path, site: str, state: Path) -> NodeProcess:
    """Return the node of a site as `isthmus relay` runs it."""
    words = ("relay", str(mesh_file), "--site", site, "--state", str(state))
    return NodeProcess(
        site,
        (sys.executable, "-m", "isthmus", *words),
        state / "logs" / f"{site}.log",
        state / "sites" / site / "node.json",
    )


@contextlib.asynccontextmanager
async def supervised(mesh: LiveMesh) -> AsyncIterator[Supervisor]:
    """A node a site, looked after while the block lasts; it listens to signals as `up` does."""
    plans = [
        ChildPlan(_site_node(mesh.file, site, mesh.state), NODE_POLICY) for site in mesh.mesh.sites
    ]
    supervisor = Supervisor(mesh.state, plans)
    running = asyncio.create_task(supervisor.run_until_signalled(), name="supervisor")
    try:
        yield supervisor
    finally:
        supervisor.stop()
        await running


def node_record(supervisor: Supervisor, site: str) -> ChildRecord:
    """What the supervisor knows of a site's node."""
    record = supervisor.record().child("node", site)
    assert record is not None
    return record


async def isthmus(mesh: LiveMesh, command: str, *words: str) -> tuple[int, str]:
    """Run `isthmus COMMAND FILE WORDS --state DIR`; its exit status, and all that it said."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "isthmus", command, str(mesh.file), *words),
        *("--state", str(mesh.state)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()
