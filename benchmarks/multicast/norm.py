"""NORM over the same network: Debian's libnorm, with one sender and a receiver a site."""

from __future__ import annotations

import asyncio
import subprocess
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.compare.downloads import DownloadError
from benchmarks.multicast.site_network import SiteNetwork

_SOURCE = Path(__file__).resolve().parents[1] / "norm" / "norm_beside.cpp"
_GROUP, _PORT = "239.192.7.2", "7401"
_WITHIN_S = 300.0
_SETTLE_S = 2.0


@dataclass(frozen=True, slots=True)
class NormLoad:
    """`count` objects of `size` bytes, `per_second`, sent at `rate` bytes a second."""

    count: int
    size: int
    per_second: float
    rate: float


def version() -> str:
    """Return the version of the library's package."""
    words = ("dpkg-query", "--show", "--showformat", "${Version}", "libnorm-dev")
    told = subprocess.run(words, capture_output=True, text=True, check=False)
    return told.stdout.strip()


def build(folder: Path) -> Path:
    """Compile the program. Raises DownloadError where the library or the compiler is missing."""
    program = folder / "norm_beside"
    words = ("g++", "-O2", "-o", str(program), str(_SOURCE), "-lnorm")
    try:
        subprocess.run(words, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise DownloadError(
            "NORM beside needs g++ and libnorm: scripts/install-packages.sh g++ libnorm-dev"
        ) from error
    return program


class NormGroup:
    """Sender at the first site, receivers at all others."""

    def __init__(self, network: SiteNetwork, program: Path) -> None:
        self._network = network
        self._program = program

    async def send(self, load: NormLoad) -> tuple[int, int]:
        """Send the load to all; return the bytes that the sender has sent, and all sites. Raises
        TimeoutError.
        """
        async with AsyncExitStack() as stack:
            others = range(1, self._network.count)
            receivers = [await self._start(stack, "receive", site, load.count) for site in others]
            for receiver in receivers:
                assert receiver.stdout is not None
                await receiver.stdout.readline()
            before = self._sent()
            began = time.monotonic()
            every_ms = 1000 / load.per_second
            await self._start(
                *(stack, "send", 0, load.count, load.size, round(every_ms), load.rate * 8)
            )
            await asyncio.wait_for(
                asyncio.gather(*(receiver.wait() for receiver in receivers)), _WITHIN_S
            )
            # As long as a mesh is given, beyond the last arrival.
            rest_s = began + load.count / load.per_second - time.monotonic()
            await asyncio.sleep(max(0.0, rest_s) + _SETTLE_S)
            after = self._sent()
        return after[0] - before[0], sum(after) - sum(before)

    def _sent(self) -> list[int]:
        return [self._network.sent_bytes(site) for site in range(self._network.count)]

    async def _start(
        self, stack: AsyncExitStack, word: str, site: int, *more: float
    ) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *self._network.inside(site),
            *("setpriv", "--pdeathsig", "KILL", "--"),
            *(str(self._program), word, _GROUP, _PORT, "wan", str(site + 1), *map(str, more)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        stack.push_async_callback(_end, process)
        return process


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()
