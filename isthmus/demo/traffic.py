"""Applications of the demo: ordinary AMQP clients that publish and count arrivals."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from dataclasses import dataclass, field

import aio_pika
from aio_pika.abc import AbstractIncomingMessage, AbstractRobustConnection

_AT_ONCE = 100
"""Publishes under way at a time, like an application with a pool of workers."""
_AGAIN_EVERY = 100
"""Every such message is sent twice under one ID, as unsure clients do."""


@dataclass(slots=True)
class DemoPublisher:
    """Publisher at one site, with counts of confirms."""

    site: str
    uri: str
    count: int
    per_second: float
    confirmed: int = 0
    again: int = 0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        connection = await aio_pika.connect(self.uri)
        async with connection:
            channel = await connection.channel(publisher_confirms=True)
            orders = await channel.get_exchange("orders", ensure=False)
            began = loop.time()
            for first in range(0, self.count, _AT_ONCE):
                await asyncio.sleep(began + first / self.per_second - loop.time())
                batch = range(first, min(first + _AT_ONCE, self.count))
                # One after the other into the channel, so that their order is that of numbers;
                # the confirms are waited for together.
                await asyncio.gather(*(self._publish(orders, number) for number in batch))

    async def _publish(self, orders: aio_pika.abc.AbstractExchange, number: int) -> None:
        message = aio_pika.Message(
            f'{{"site": "{self.site}", "order": {number}, "text": "{"x" * 200}"}}'.encode(),
            message_id=str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self.site}/{number}")),
            content_type="application/json",
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            headers={"number": number, "origin": self.site},
        )
        await orders.publish(message, f"order.{self.site}", mandatory=False)
        self.confirmed += 1
        if number % _AGAIN_EVERY == 0:
            await orders.publish(message, f"order.{self.site}", mandatory=False)
            self.again += 1


@dataclass(slots=True)
class DemoConsumer:
    """Consumer at one site, with counts of arrivals, copies and disorder."""

    site: str
    uri: str
    seen: dict[str, Counter[int]] = field(default_factory=dict)
    flagged: Counter[str] = field(default_factory=Counter)
    repeated: Counter[str] = field(default_factory=Counter)
    """Unflagged copies beyond the first, by origin."""
    disordered: Counter[str] = field(default_factory=Counter)
    _last: dict[str, int] = field(default_factory=dict)
    _connection: AbstractRobustConnection | None = None

    async def start(self) -> None:
        self._connection = await aio_pika.connect_robust(self.uri)
        channel = await self._connection.channel()
        await channel.set_qos(prefetch_count=1000)
        queue = await channel.declare_queue(f"demo.{self.site}", durable=True)
        await queue.bind("orders", "order.#")
        await queue.consume(self._take, no_ack=True)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    def arrived(self, origin: str) -> int:
        """Return the number of distinct messages of an origin."""
        return len(self.seen.get(origin, ()))

    async def _take(self, message: AbstractIncomingMessage) -> None:
        origin, number = str(message.headers["origin"]), int(str(message.headers["number"]))
        counts = self.seen.setdefault(origin, Counter())
        flagged = bool(message.headers.get("x-mesh-redelivered", False))
        if flagged:
            self.flagged[origin] += 1
        elif counts[number]:
            self.repeated[origin] += 1
        elif number < self._last.get(origin, -1):
            self.disordered[origin] += 1
        counts[number] += 1
        if not flagged:
            self._last[origin] = max(number, self._last.get(origin, -1))
