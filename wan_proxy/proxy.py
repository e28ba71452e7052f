"""Proxy: lines by name, in the caller's event loop."""

from typing import Self

from wan_proxy.condition import LAN, ConditionError, LineCondition
from wan_proxy.line import ProxiedLine


class WanProxy:
    """Set of lines, used as `async with WanProxy(seed=1) as proxy`; leaving the block ends every
    line.

    `seed` decides the late segments and the jitter.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self._seed = seed
        self._lines: dict[str, ProxiedLine] = {}

    @property
    def lines(self) -> dict[str, ProxiedLine]:
        """Copy of the lines, by name."""
        return dict(self._lines)

    async def open_line(
        self,
        name: str,
        target_host: str,
        target_port: int,
        condition: LineCondition | str = LAN,
        *,
        port: int = 0,
    ) -> ProxiedLine:
        """Open a line that listens on return; `port` 0 takes a free one.

        Raise ConditionError for a name in use or an unknown preset, OSError for a port in use.
        """
        if name in self._lines:
            raise ConditionError("name", name, "there is a line of this name, use another")
        chosen = LineCondition.named(condition) if isinstance(condition, str) else condition
        line = ProxiedLine(name, (target_host, target_port), chosen, port=port, seed=self._seed)
        self._lines[name] = line
        return line

    def line(self, name: str) -> ProxiedLine:
        """Return the line of this name. Raise ConditionError, listing all names."""
        if name not in self._lines:
            raise ConditionError("line", name, f"use one of {', '.join(self._lines) or '(none)'}")
        return self._lines[name]

    async def close_line(self, name: str) -> None:
        """Close a line: stop listening and reset its connections."""
        line = self.line(name)
        del self._lines[name]
        await line.stop()

    async def close(self) -> None:
        """Close all lines."""
        for name in tuple(self._lines):
            await self.close_line(name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
