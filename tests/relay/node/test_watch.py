"""How many messages wait in a site's own queues, and how often its broker is asked."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import cast

from relay.bulk_amqp import ChannelClosed, Connection, ConnectionFailed
from relay.bulk_amqp.channel import DeclaredQueue
from relay.node.watch import LOOKS_BETWEEN, GaugedQueues, Waiting, watch_queues
from tests.virtual_time import in_virtual_time, let_pass
from tests.waiting import until

EVERY_S = 2.0


class Broker:
    """Queues and what is in them; each is its own connection and channel."""

    def __init__(self, **queues: int) -> None:
        self.queues = queues
        self.asked: Counter[str] = Counter()
        self.is_away = False

    async def connect(self) -> Connection:
        if self.is_away:
            raise ConnectionFailed("away")
        return cast(Connection, self)

    async def channel(self) -> Broker:
        return self

    async def close(self) -> None: ...

    async def declare_queue(self, queue: str, *, passive: bool) -> DeclaredQueue:
        assert passive
        if self.is_away:
            raise ConnectionFailed("away")
        self.asked[queue] += 1
        if queue not in self.queues:
            raise ChannelClosed(404, f"no queue {queue!r}")
        return DeclaredQueue(queue, self.queues[queue], 0)


class Gauge:
    """Runs until left."""

    def __init__(self, broker: Broker) -> None:
        self.told = Waiting()
        self.stirred = 0
        queues = GaugedQueues(lambda: ("orders", "news"), "dead", "odd", lambda: self.stirred)
        self._task = asyncio.create_task(
            watch_queues(
                broker.connect,
                queues,
                lambda waiting: setattr(self, "told", waiting),
                lambda: 0.5,
                ask_every_s=EVERY_S,
            )
        )

    async def __aenter__(self) -> Gauge:
        await let_pass(0.1)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@in_virtual_time
async def test_egress_queues_are_added_up_and_those_put_aside_are_told_each() -> None:
    async with Gauge(Broker(orders=3, news=4, dead=2, odd=1)) as gauge:
        assert gauge.told == Waiting(7, 2, 1)


@in_virtual_time
async def test_in_a_queue_that_is_not_declared_yet_nothing_waits() -> None:
    async with Gauge(Broker(news=4)) as gauge:
        assert gauge.told == Waiting(4, 0, 0)


@in_virtual_time
async def test_what_was_put_aside_is_asked_about_seldom_unless_something_happened() -> None:
    broker = Broker(orders=0, news=0, dead=0, odd=0)
    async with Gauge(broker) as gauge:
        await let_pass(4 * EVERY_S)
        broker.asked.clear()
        broker.queues["dead"] = 5  # by somebody else
        await let_pass(LOOKS_BETWEEN * 2 * EVERY_S)
        assert broker.asked["orders"] == LOOKS_BETWEEN
        assert broker.asked["dead"] == broker.asked["odd"] == 1
        assert gauge.told.dead_letters == 5

        asked = broker.asked["dead"]
        gauge.stirred += 1
        await until(lambda: broker.asked["dead"] > asked, "asked at once", 3 * EVERY_S)
        broker.queues["dead"] = 6  # its number came before it did
        await let_pass(EVERY_S)
        assert gauge.told.dead_letters == 6


@in_virtual_time
async def test_nobody_knows_while_the_broker_is_away() -> None:
    broker = Broker(orders=1, news=0, dead=1, odd=1)
    async with Gauge(broker) as gauge:
        broker.is_away = True
        await let_pass(EVERY_S)
        assert gauge.told == Waiting(-1, -1, -1)
        broker.is_away = False
        await let_pass(30)
        assert gauge.told == Waiting(1, 1, 1)
