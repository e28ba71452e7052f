"""Servers of ways that have no use for RabbitMQ: who they are, and their processes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from isthmus import processes

_PATIENCE_S = 10.0
_LAST_BYTES = 2000


class Servers(Protocol):
    """Servers that applications of a way publish and consume at."""

    @property
    def version(self) -> str: ...

    def uri(self, site: str) -> str:
        """Return the address of a site's server; `load_clients` knows its scheme."""
        ...

    def pids(self) -> Sequence[int]: ...


class ServerEndedError(Exception):
    """End of a server that was to run; the text has the end of its log."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        super().__init__(f"{name} has ended:\n{log.read_text(errors='replace')[-_LAST_BYTES:]}")


class ServerProcess:
    """Process of a server, which ends with this one; all that it prints goes to a log."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self, command: Sequence[str]) -> None:
        """Start the process."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *("setpriv", "--pdeathsig", "KILL", "--", *command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def check(self) -> None:
        """Raise ServerEndedError when the process has ended."""
        if self._process is not None and self._process.returncode is not None:
            raise ServerEndedError(self.name, self._log)

    async def finish(self) -> None:
        """Wait for a program that ends by itself. Raises ServerEndedError if it failed."""
        assert self._process is not None
        if await self._process.wait():
            self.check()

    async def stop(self) -> None:
        """End the process in order, or by force."""
        if self._process is None or self._process.returncode is not None:
            return
        running = processes.mark(self._process.pid)
        if running is not None:
            await processes.end([running], first=signal.SIGTERM, patience_s=_PATIENCE_S)
        await self._process.wait()
