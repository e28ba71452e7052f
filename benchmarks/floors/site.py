"""The one broker that is measured, and how: its CPU until it rests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping

from pamqp.common import FieldValue

from benchmarks.compare.brokers import Brokers
from benchmarks.compare.usage import tree_cpu_s
from federation.brokers.addresses import StreamAddress
from relay.bulk_amqp import Connection, connect

NAME = "site"
IDLE_S = 3.0
_LOOK_S = 0.25
_TICK_S = 0.01
_AT_MOST_S = 10.0


class Site:
    """A broker and what it uses while nobody asks anything of it."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._idle = 0.0
        spec = brokers.by_site[NAME].spec
        user = spec.users[0]
        self.user = user.name
        self.uri = brokers.uri(NAME)
        self.amqp_port = spec.amqp_port
        self.stream = StreamAddress("127.0.0.1", spec.stream_port, "/", user.name, user.password)

    def _cpu_s(self) -> float:
        return tree_cpu_s(self._brokers.pids())

    async def look_at_rest(self) -> float:
        """Measure the broker's CPU a second at rest, which is taken off the measurements."""
        await asyncio.sleep(IDLE_S)
        before, began = self._cpu_s(), time.monotonic()
        await asyncio.sleep(IDLE_S)
        self._idle = (self._cpu_s() - before) / (time.monotonic() - began)
        return self._idle

    async def rests(self) -> None:
        """Wait until the broker rests: late work, such as segment writes, belongs to its cause."""
        end = time.monotonic() + _AT_MOST_S
        while time.monotonic() < end:
            before = self._cpu_s()
            await asyncio.sleep(_LOOK_S)
            if self._cpu_s() - before <= self._idle * _LOOK_S + _TICK_S * 1.5:
                return

    async def us(self, work: Awaitable[None], messages: int) -> float:
        """The broker's CPU a message in microseconds; it must rest before."""
        before, began = self._cpu_s(), time.monotonic()
        await work
        await self.rests()
        used = self._cpu_s() - before - self._idle * (time.monotonic() - began)
        return used / messages * 1e6

    async def connect(self) -> Connection:
        return await connect(self.uri, name="floors")

    async def declare(self, kind: str, arguments: Mapping[str, FieldValue]) -> None:
        """A queue of that name, bound to a topic and to a fanout exchange of its own, and an
        exchange that leads nowhere.
        """
        connection = await self.connect()
        channel = await connection.channel()
        await channel.declare_queue(kind, durable=True, arguments=arguments)
        for sort in ("topic", "fanout"):
            await channel.declare_exchange(f"{kind}.{sort}", sort, durable=True)
            await channel.bind_queue(kind, f"{kind}.{sort}", "#")
        await channel.declare_exchange(f"{kind}.nowhere", "topic", durable=True)
        await connection.close()

    async def delete(self, kind: str) -> None:
        connection = await self.connect()
        await (await connection.channel()).delete_queue(kind)
        await connection.close()

    async def purge(self, kind: str) -> None:
        connection = await self.connect()
        await (await connection.channel()).purge_queue(kind)
        await connection.close()
