"""Starts `python -m wan_proxy`, and ends it with whoever started it."""

import asyncio
import json
import sys
from typing import Self

from wan_proxy.control_client import ProxyControl


class ProxyStartError(Exception):
    """The proxy's process ended with `exit_code` before it listened; its stderr says why."""

    def __init__(self, exit_code: int | None) -> None:
        super().__init__(f"the proxy ended with exit code {exit_code}: see its stderr")
        self.exit_code = exit_code


class ProxyProcess:
    """Use as `async with ProxyProcess(seed=1) as process: await process.control.open_line(...)`.

    The process ends when this is left, and also when the one that started it dies: its stdin ends.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self._seed = seed
        self._process: asyncio.subprocess.Process | None = None
        self._control: ProxyControl | None = None

    @property
    def pid(self) -> int:
        """Of the proxy, to read its CPU time."""
        if self._process is None:
            raise ProxyStartError(None)
        return self._process.pid

    @property
    def control(self) -> ProxyControl:
        """Connected."""
        if self._control is None:
            raise ProxyStartError(None)
        return self._control

    async def start(self) -> None:
        """Returns when it listens. Raises ProxyStartError."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "wan_proxy"),
            *("--until-stdin-ends", "--seed", str(self._seed)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        listening = await self._process.stdout.readline()
        if not listening:
            raise ProxyStartError(await self._process.wait())
        self._control = ProxyControl(json.loads(listening)["control"])
        await self._control.connect()

    async def stop(self) -> None:
        """Ends it and waits for it."""
        if self._control is not None:
            await self._control.disconnect()
        if self._process is not None:
            if self._process.returncode is None:
                self._process.terminate()
            await self._process.wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
