"""Runs commands of `isthmus` for the page, in processes of their own: work that takes memory or a
core for a minute must not hold up the page, and an order must do exactly as its command.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from isthmus import processes

MOST_OUTPUT = 64 << 20
"""Bytes of a command's output: a message of 16 MiB in JSON and base64 has 22 MiB."""
MOST_ERRORS = 1 << 20
PATIENCE_S = 5.0
_READ_BYTES = 1 << 16


class CommandUnfinished(Exception):
    """The command took too long or printed too much, and was ended."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Exit status of a command, and what it printed."""

    status: int
    output: str
    errors: str

    @property
    def text(self) -> str:
        """Errors and output, for people."""
        return "\n".join(part.strip() for part in (self.errors, self.output) if part.strip())


async def run_command(words: Sequence[str], within_s: float) -> CommandResult:
    """Run `isthmus` with these words and return the result. The command ends with the caller.
    Raises CommandUnfinished.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "isthmus", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(within_s):
            output, errors = await asyncio.gather(
                _read(process.stdout, MOST_OUTPUT), _read(process.stderr, MOST_ERRORS)
            )
            status = await process.wait()
    except TimeoutError:
        raise CommandUnfinished(f"it took longer than {within_s:g} s, and was ended") from None
    finally:
        await asyncio.shield(_end(process))
    return CommandResult(status, output, errors)


async def _read(stream: asyncio.StreamReader, most: int) -> str:
    data = bytearray()
    while part := await stream.read(_READ_BYTES):
        data += part
        if len(data) > most:
            raise CommandUnfinished(f"it printed more than {most:,} bytes, and was ended")
    return data.decode(errors="replace")


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the process and its descendants, if they run; return when all are gone."""
    if process.returncode is None and (own := processes.mark(process.pid)) is not None:
        every = [own, *processes.descendants(own.pid)]
        await processes.end(every, first=signal.SIGTERM, patience_s=PATIENCE_S)
    await process.wait()
