"""Load of a mesh: messages published at the first site, and when they come to all others."""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from struct import Struct

from benchmarks.compare.until import until
from benchmarks.multicast.site_mesh import EXCHANGE, MulticastMesh
from benchmarks.multicast.site_network import SiteNetwork
from relay.bulk_amqp import Connection, Consumer, Delivery, Publisher, connect
from relay.bulk_amqp.content_header import NONE_PRESENT

_HEAD = Struct("<Qd")
_WITHIN_S = 180.0
_SETTLE_S = 2.0
"""Time for what goes on after the last arrival: acknowledgements, pulses, repairs in vain."""


@dataclass(frozen=True, slots=True)
class Spread:
    """`count` messages of `size` random bytes, published `per_second`."""

    count: int
    size: int
    per_second: float

    @property
    def payload(self) -> int:
        """Bytes of all messages, which no compression makes fewer."""
        return self.count * self.size


@dataclass(frozen=True, slots=True)
class Carried:
    """Cost of a load: bytes that the publisher's site has sent over its line, that the brokers have
    sent over lines, and that all together have; delays of all deliveries, in ms.
    """

    publisher_bytes: int
    broker_bytes: int
    all_bytes: int
    delays_ms: tuple[float, ...]
    missing: int

    @property
    def p50_ms(self) -> float:
        """Median of the delays."""
        return quantile(self.delays_ms, 0.5)

    @property
    def p99_ms(self) -> float:
        """Delay that one of a hundred deliveries exceeds."""
        return quantile(self.delays_ms, 0.99)


def quantile(figures: Sequence[float], part: float) -> float:
    """Return the figure that this part of all do not exceed."""
    if len(figures) < 2:
        return figures[0] if figures else float("nan")
    return statistics.quantiles(figures, n=1000, method="inclusive")[round(part * 1000) - 1]


class SiteLoad:
    """Publisher at the first site of a mesh, and a consumer at each other."""

    def __init__(self, mesh: MulticastMesh, network: SiteNetwork) -> None:
        self._mesh = mesh
        self._network = network
        self._stack = AsyncExitStack()
        self._consumers: list[Consumer] = []
        self._first = 0
        """Number of the first message that counts."""
        self._delays_ms: list[float] = []

    async def open(self) -> None:
        """Connect to all brokers, and consume."""
        for site in self._mesh.shape.names[1:]:
            channel = await (await self._connected(site)).channel()
            await channel.declare_queue("bench", durable=True)
            await channel.bind_queue("bench", EXCHANGE, "#")
            consumer = Consumer(channel, "bench", self._take)
            self._consumers.append(consumer)
            await consumer.start(prefetch=2000, no_ack=True)
        connection = await self._connected(self._mesh.shape.names[0])
        self._publisher = Publisher(await connection.channel())
        await self._publisher.start()

    async def _connected(self, site: str) -> Connection:
        connection = await connect(self._mesh.uri(site))
        self._stack.push_async_callback(connection.close)
        return connection

    def _take(self, deliveries: Sequence[Delivery]) -> None:
        now = asyncio.get_running_loop().time()
        for delivery in deliveries:
            number, due = _HEAD.unpack_from(delivery[5])
            if number >= self._first:
                self._delays_ms.append((now - due) * 1e3)

    async def carry(self, spread: Spread) -> Carried:
        """Publish, and wait until all has come, or nothing more comes."""
        loop = asyncio.get_running_loop()
        wanted = spread.count * len(self._consumers)
        self._delays_ms = []
        before = self._sent()
        began = loop.time()
        for nth in range(spread.count):
            due = began + nth / spread.per_second
            await asyncio.sleep(max(0.0, due - loop.time()))
            body = _HEAD.pack(self._first + nth, due) + os.urandom(spread.size - _HEAD.size)
            self._publisher.publish_many([(EXCHANGE, b"k", NONE_PRESENT, body)])
            await self._publisher.drain()

        async def all_came() -> bool:
            return len(self._delays_ms) >= wanted

        with contextlib.suppress(TimeoutError):  # what is missing is told
            await until(all_came, "all deliveries", _WITHIN_S)
        await asyncio.sleep(_SETTLE_S)
        after = self._sent()
        self._first += spread.count
        publisher, brokers, everyone = (now - was for now, was in zip(after, before, strict=True))
        missing = wanted - len(self._delays_ms)
        return Carried(publisher, brokers, everyone, tuple(self._delays_ms), missing)

    def _sent(self) -> tuple[int, int, int]:
        nodes = [self._network.sent_bytes(site) for site in range(self._network.count)]
        brokers = self._network.sent_by_brokers()
        return nodes[0], brokers, sum(nodes) + brokers

    async def close(self) -> None:
        """Close all connections."""
        await self._stack.aclose()
