"""Way of messages from site to site: one of the compared ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from benchmarks.compare.brokers import Brokers
from benchmarks.compare.layout import Layout
from benchmarks.compare.servers import Servers
from benchmarks.proxy_process.client import ProxyControl
from wan_proxy import LineCondition


class Lines:
    """Lines between the sites: the proxy's, or loopback."""

    def __init__(
        self, brokers: Brokers, control: ProxyControl | None, condition: LineCondition | None
    ) -> None:
        self._brokers = brokers
        self._control = control
        self.condition = condition
        self._open: dict[str, int] = {}

    @property
    def round_trip_ms(self) -> float:
        """Delay there and back, without what a rate adds."""
        if self.condition is None:
            return 0.0
        return self.condition.outward.delay_ms + self.condition.inward.delay_ms

    async def reset(self, way: str) -> None:
        """Break all connections of a way, which has to make them anew."""
        if self._control is not None:
            for line in self._open:
                if line.startswith(f"{way}: "):
                    await self._control.reset(line)

    async def port_of(
        self,
        way: str,
        dialler: str,
        dialled: str,
        *,
        shared: bool = False,
        target: int | None = None,
    ) -> int:
        """Return the port by which one site reaches the other's broker, or its server at the port
        `target`: a line of its own for each way, which all diallers of a broker may share.
        """
        port = target or self._brokers.by_site[dialled].spec.amqp_port
        if self._control is None or self.condition is None:
            return port
        name = f"{way}: to {dialled}" if shared else f"{way}: {dialler} to {dialled}"
        if name not in self._open:
            line = await self._control.open_line(name, "127.0.0.1", port, self.condition)
            self._open[name] = line
        return self._open[name]


class Way(Protocol):
    """`publishes_to` is the exchange that applications publish to, `arrives_at` the one that
    queues at other sites are bound to. With `servers` of its own, a way has streams or topics in
    place of exchanges and queues.
    """

    @property
    def name(self) -> str: ...
    @property
    def publishes_to(self) -> str: ...
    @property
    def arrives_at(self) -> str: ...
    @property
    def servers(self) -> Servers | None: ...

    async def set_up(self, brokers: Brokers, layout: Layout, lines: Lines) -> None:
        """Declare and connect."""
        ...

    async def ready(self, brokers: Brokers, layout: Layout) -> None:
        """Wait until the whole way runs; the queues are bound by now. Raises TimeoutError.

        Called again when the lines have changed.
        """
        ...

    def relay_pids(self) -> Sequence[int]:
        """Return the processes of the way, without the brokers."""
        ...

    async def close(self) -> None: ...
