"""What node processes take of memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.journeys.live_mesh import LiveMesh


class MemoryWatch:
    """Watches what the nodes take of memory while the block lasts.

    `growth_mb`: by which each site's process has grown at most since the block, or `begin`;
    `most_mb`: what it had at most.
    """

    def __init__(self, mesh: LiveMesh, every_s: float = 0.25) -> None:
        self._pids = {site: process.pid for site, process in mesh.processes.items()}
        self._every_s = every_s
        self._before: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None
        self.growth_mb: dict[str, float] = {}
        self.most_mb: dict[str, float] = {}

    def begin(self) -> None:
        """Forget what was before."""
        self._before = {site: node_rss_mb(pid) for site, pid in self._pids.items()}
        self.growth_mb = dict.fromkeys(self._pids, 0.0)
        self.most_mb = dict(self._before)

    async def __aenter__(self) -> MemoryWatch:
        self.begin()
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._look()

    async def _watch(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(self._every_s)

    def _look(self) -> None:
        for site, pid in self._pids.items():
            now = node_rss_mb(pid)
            self.growth_mb[site] = max(self.growth_mb[site], now - self._before[site])
            self.most_mb[site] = max(self.most_mb[site], now)


def node_rss_mb(pid: int) -> float:
    """Resident memory of a process, MB."""
    return _status_mb(pid, "VmRSS")


def most_memory_mb(pid: int) -> float:
    """The most resident memory that a process ever had, MB."""
    return _status_mb(pid, "VmHWM")


def _status_mb(pid: int, figure: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{figure}:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)
