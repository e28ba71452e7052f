"""Process that writes ledger files, as seen by its node; shared by all sites of a node process.

Starting the process costs half a second of CPU, for hundreds of quiet sites more than all their
other work.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

from relay.ledger.file import LedgerFile

_PATIENCE_S = 3.0


class ExportFailed(Exception):
    """The file could not be written. The rows stay in the store; the next round tries again."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"could not write {path}: {reason}; the ledger's rows are kept in the state folder"
            " until it works: check the disk"
        )
        self.path = path
        self.reason = reason


class FileWriter:
    """A running process of `relay.ledger.file`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        """Public for a test that kills the process."""

    @classmethod
    async def start(cls) -> FileWriter:
        """Start the process. Raises OSError."""
        # A session of its own: Ctrl-C is for the node, which lets it finish the file.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "relay.ledger.file",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        return cls(process)

    @property
    def has_ended(self) -> bool:
        """True if the process has ended by itself, or was killed."""
        return self.process.returncode is not None

    async def send(self, file: LedgerFile, data: bytes) -> None:
        """Hand over a part of this file. Raises ExportFailed."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(data)
            await self.process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            raise ExportFailed(file.path, await self._last_words()) from None

    async def finished(self, file: LedgerFile) -> None:
        """Wait until the file is on the disk under its name. Raises ExportFailed."""
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        if line.decode().rstrip("\n") != file.path:
            raise ExportFailed(file.path, await self._last_words())

    async def _last_words(self) -> str:
        assert self.process.stderr is not None
        words = (await self.process.stderr.read()).decode(errors="replace").strip()
        return words.splitlines()[-1] if words else f"exit {await self.process.wait()}"

    async def stop(self) -> None:
        """End the process; in mid-file, after a failure or a cancelled round, nothing is left
        behind.
        """
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self.process.wait()
        except TimeoutError:
            # A disk that hangs must not keep the node from ending; a half file has no name yet.
            with contextlib.suppress(ProcessLookupError):  # ended just now
                self.process.kill()


class FileWriters:
    """Holder of at most one writing process, kept for `linger_s` after its last file."""

    def __init__(self, linger_s: float = 0.0) -> None:
        self._linger_s = linger_s
        self._turn = asyncio.Lock()
        self._writer: FileWriter | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[FileWriter]:
        """Turn of one site. A failure or a cancellation within ends the process. Raises
        ExportFailed if the process cannot be started.
        """
        async with self._turn:
            self._keep()
            if self._writer is not None and self._writer.has_ended:
                await self._stop()
            if self._writer is None:
                self._writer = await self._start()
            async with contextlib.AsyncExitStack() as unless_well:
                unless_well.push_async_callback(self._stop)
                yield self._writer
                if self._linger_s:
                    unless_well.pop_all()
                    loop = asyncio.get_running_loop()
                    self._timer = loop.call_later(self._linger_s, self._end)

    async def _start(self) -> FileWriter:
        # Never cancelled half-way: asyncio would wait, maybe for ever, for a process whose pipes
        # are not connected.
        starting = asyncio.ensure_future(FileWriter.start())
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await (await starting).stop()
            raise
        except OSError as error:
            raise ExportFailed("the ledger", f"no process to write it: {error}") from error

    async def close(self) -> None:
        """End the process, once the present turn is over; another turn starts another process."""
        async with self._turn:
            self._keep()
            await self._stop()

    def _keep(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self._timer = None
        self._ending = asyncio.get_running_loop().create_task(self.close())

    async def _stop(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.stop()
