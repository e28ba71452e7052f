"""Private servers of one kind, started and ended together."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol, Self

from isthmus import processes

OUTPUT = "output.log"
_POLL_S = 0.1
_LAST_LINES = 20


class Server(Protocol):
    """Server of the group; its files are in `folder`."""

    @property
    def folder(self) -> Path: ...

    @property
    def command(self) -> Sequence[str]: ...

    def prepare(self) -> None:
        """Write its settings."""

    async def serves(self) -> bool:
        """Return True if clients are answered."""


class ServerStartError(Exception):
    """A server did not come up; the text has the last lines of its log."""


class ServerGroup:
    """Servers by name. Use as `async with`, or call `start` and `stop`."""

    def __init__(
        self, kind: str, servers: dict[str, Server], *, start_within_s: float, patience_s: float
    ) -> None:
        self._kind = kind
        self._servers = servers
        self._start_within_s = start_within_s
        self._patience_s = patience_s
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as unless_up:
            unless_up.push_async_callback(self.stop)
            await self.start()
            unless_up.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start all servers, and wait until each serves clients. Raises ServerStartError."""
        for name in self._servers:
            await self.begin(name)
        for name in self._servers:
            await self.until_serving(name)

    async def begin(self, name: str) -> None:
        """Start one server, without waiting for it."""
        server = self._servers[name]
        server.prepare()
        with (server.folder / OUTPUT).open("ab") as output:
            self._processes[name] = await asyncio.create_subprocess_exec(
                *("setpriv", "--pdeathsig", "KILL", "--", *server.command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={"PATH": os.environ["PATH"]},
            )

    async def until_serving(self, name: str) -> None:
        """Wait until a server that was begun serves clients. Raises ServerStartError."""
        try:
            async with asyncio.timeout(self._start_within_s):
                while not await self._servers[name].serves():
                    if self._processes[name].returncode is not None:
                        raise ServerStartError(self._why(name, "has ended"))
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            what = f"serves nobody after {self._start_within_s:.0f} s"
            raise ServerStartError(self._why(name, what)) from None

    async def stop(self) -> None:
        """End all servers, each by its process ID."""
        marks = [processes.mark(process.pid) for process in self._processes.values()]
        await processes.end(
            [mark for mark in marks if mark is not None],
            first=signal.SIGTERM,
            patience_s=self._patience_s,
        )
        for process in self._processes.values():
            await process.wait()
        self._processes = {}

    def pid_of(self, name: str) -> int:
        """Return the process ID of a server."""
        return self._processes[name].pid

    def _why(self, name: str, what: str) -> str:
        lines: list[str] = []
        for log_file in sorted(self._servers[name].folder.glob("*.log"), reverse=True):
            with contextlib.suppress(OSError):
                lines += log_file.read_text(errors="replace").splitlines()
        return "\n".join([f"{self._kind} {name} {what}:", *lines[-_LAST_LINES:]])
