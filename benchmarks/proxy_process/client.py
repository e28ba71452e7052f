"""Client of a proxy in a process of its own: start the process and control its lines."""

import asyncio
import json
import sys
from typing import Any, Self

from wan_proxy.condition import LineCondition
from wan_proxy.connection import Side
from wan_proxy.line import LineStatistics, NewConnects, Way


class ControlError(Exception):
    """Refusal of `request` by the proxy; `reason` says what to give instead."""

    def __init__(self, request: dict[str, Any], reason: str) -> None:
        super().__init__(f"{request.get('do')}: {reason}")
        self.request = request
        self.reason = reason


class ProxyControl:
    """Control connection, used as `async with ProxyControl(port) as control`.

    Requests go out one at a time. Every method raises ControlError if the proxy refuses, and
    ConnectionError if the connection is gone.
    """

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._address = (host, port)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._turn = asyncio.Lock()

    async def connect(self) -> None:
        """Open the control connection."""
        self._reader, self._writer = await asyncio.open_connection(*self._address)

    async def disconnect(self) -> None:
        """Close the control connection; the proxy keeps running."""
        if self._writer is not None:
            self._writer.close()
            self._reader = self._writer = None

    async def open_line(
        self,
        line: str,
        target_host: str,
        target_port: int,
        condition: LineCondition | str = "LAN",
        *,
        port: int = 0,
    ) -> int:
        """Open a line; return its port."""
        answer = await self._ask(
            do="open",
            line=line,
            target=f"{target_host}:{target_port}",
            condition=_as_json(condition),
            port=port,
        )
        opened: int = answer["port"]
        return opened

    async def end_line(self, line: str) -> None:
        """Close a line for good."""
        await self._ask(do="end", line=line)

    async def lines(self) -> dict[str, dict[str, Any]]:
        """Return each line's port, target, condition and cut, by name."""
        lines: dict[str, dict[str, Any]] = (await self._ask(do="lines"))["lines"]
        return lines

    async def set(self, line: str, condition: LineCondition | str) -> None:
        """Call `ProxiedLine.set` of a line."""
        await self._ask(do="set", line=line, condition=_as_json(condition))

    async def cut(
        self,
        line: str,
        way: Way = "both",
        *,
        forget: bool = False,
        new_connects: NewConnects = "held",
    ) -> None:
        """Call `ProxiedLine.cut` of a line."""
        await self._ask(do="cut", line=line, way=way, forget=forget, new_connects=new_connects)

    async def heal(self, line: str) -> None:
        """Call `ProxiedLine.heal` of a line."""
        await self._ask(do="heal", line=line)

    async def reset(self, line: str) -> None:
        """Call `ProxiedLine.reset` of a line."""
        await self._ask(do="reset", line=line)

    async def close(self, line: str) -> None:
        """Call `ProxiedLine.close` of a line."""
        await self._ask(do="close", line=line)

    async def half_open(self, line: str, kept: Side) -> None:
        """Call `ProxiedLine.half_open` of a line."""
        await self._ask(do="half_open", line=line, kept=kept)

    async def statistics(self, line: str) -> LineStatistics:
        """Call `ProxiedLine.statistics` of a line."""
        answer = await self._ask(do="statistics", line=line)
        return LineStatistics.from_json(answer["statistics"])

    async def _ask(self, **request: Any) -> dict[str, Any]:
        async with self._turn:
            if self._reader is None or self._writer is None:
                raise ConnectionError("not connected: use `async with ProxyControl(port)`")
            self._writer.write(json.dumps(request).encode() + b"\n")
            await self._writer.drain()
            line = await self._reader.readline()
        if not line:
            raise ConnectionError(f"the proxy at {self._address} is gone")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ControlError(request, answer["error"])
        return answer

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()


def _as_json(condition: LineCondition | str) -> object:
    return condition if isinstance(condition, str) else condition.to_json()


class ProxyStartError(Exception):
    """Exit of the proxy's process before it listened; its stderr has the reason."""

    def __init__(self, exit_code: int | None) -> None:
        super().__init__(f"the proxy ended with exit code {exit_code}: see its stderr")
        self.exit_code = exit_code


class ProxyProcess:
    """Process of a proxy: `async with ProxyProcess(seed=1) as process: await
    process.control.open_line(...)`.

    The process ends with the block, and also, because its stdin ends, with its parent.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self._seed = seed
        self._process: asyncio.subprocess.Process | None = None
        self._control: ProxyControl | None = None

    @property
    def pid(self) -> int:
        """Process ID of the proxy, to read its CPU time."""
        if self._process is None:
            raise ProxyStartError(None)
        return self._process.pid

    @property
    def control(self) -> ProxyControl:
        """Open control connection of the process."""
        if self._control is None:
            raise ProxyStartError(None)
        return self._control

    async def start(self) -> None:
        """Start the process; return when the proxy listens. Raise ProxyStartError."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.proxy_process"),
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
        """Terminate the process and wait for its end."""
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
