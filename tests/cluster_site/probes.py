"""Probes that tell how long nothing of one site arrives at another, whatever nodes of a cluster do.

Publishers are at each broker node of a site, and so are consumers, so that there is an outage only
if the relay has stood, not if one application has.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict

from relay.bulk_amqp import BulkAmqpError, Consumer, Delivery, Publisher, connect
from relay.bulk_amqp.content_header import header
from tests.journeys.load import home
from tests.journeys.traffic import properties

EVERY_S = 0.1
AGAIN_AFTER_S = 0.2
MOST_WAITING = 1000
"""Messages that a queue of a watch keeps: only the times of arrivals count."""


class Probe:
    """Publishes ten messages a second at one broker node, and waits for no answer."""

    def __init__(self, uri: str, origin: str, exchange: str) -> None:
        self._uri = uri
        self._origin = origin
        self._exchange = exchange

    async def run(self) -> None:
        """Publish for ever, over a new connection whenever one ends."""
        numbers = itertools.count()
        while True:
            try:
                connection = await connect(self._uri, name=f"probe {self._origin}")
            except (BulkAmqpError, OSError):
                await asyncio.sleep(AGAIN_AFTER_S)
                continue
            try:
                publisher = Publisher(await connection.channel())
                await publisher.start()
                while True:
                    raw = properties(self._origin, next(numbers), with_id=False)
                    publisher.publish_many([(self._exchange, b"order.new", raw, b"probe")])
                    await asyncio.sleep(EVERY_S)
            except BulkAmqpError:
                await asyncio.sleep(AGAIN_AFTER_S)
            finally:
                connection.abort("the probe gives this connection up")


class Watch:
    """Times at which anything of each other site came to a queue of its own at one site."""

    def __init__(self, site: str, queue: str) -> None:
        self.site = site
        self.queue = queue
        self._times: dict[str, list[float]] = defaultdict(list)

    async def declare(self, uri: str, exchange: str, members: int) -> None:
        """Declare the queue with so many members, and bind it."""
        connection = await connect(uri, name=f"watch {self.site}")
        channel = await connection.channel()
        arguments = {
            "x-queue-type": "quorum",
            "x-quorum-initial-group-size": members,
            "x-max-length": MOST_WAITING,
        }
        await channel.declare_queue(self.queue, durable=True, arguments=arguments)
        await channel.bind_queue(self.queue, exchange, "#")
        await connection.close()

    async def run(self, uri: str) -> None:
        """Consume for ever at one broker node, over a new connection whenever one ends."""
        while True:
            try:
                connection = await connect(uri, name=f"watch {self.site}")
            except (BulkAmqpError, OSError):
                await asyncio.sleep(AGAIN_AFTER_S)
                continue
            try:
                consumer = Consumer(await connection.channel(), self.queue, self._note)
                await consumer.start(prefetch=MOST_WAITING, no_ack=True)
                await connection.wait_closed()
            except BulkAmqpError:
                await asyncio.sleep(AGAIN_AFTER_S)
            finally:
                connection.abort("the watch gives this connection up")

    def _note(self, deliveries: list[Delivery]) -> None:
        now = asyncio.get_running_loop().time()
        for *_, raw, _ in deliveries:
            origin = header(raw, b"origin")
            if origin:
                self._times[home(origin[5:].decode())].append(now)

    def came_since(self, origin: str, since: float) -> bool:
        """True if anything of that site has come since then."""
        times = self._times[origin]
        return bool(times) and times[-1] > since

    def longest_gap(self, origin: str, began: float, ended: float) -> float:
        """Seconds in which nothing of that site came, the longest within these times."""
        within = [at for at in self._times[origin] if began < at < ended]
        times = [began, *within, ended]
        return max(after - before for before, after in itertools.pairwise(times))
