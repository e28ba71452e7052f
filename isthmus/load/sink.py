"""Consumes a measurement's messages at one site, and tells what became of each."""

from __future__ import annotations

import ssl
import time
from collections.abc import Collection, Mapping

from isthmus.load.latencies import Latencies
from isthmus.load.message import HEAD, HEAD_BYTES
from relay.batches.mesh_headers import REDELIVERED_HEADER
from relay.bulk_amqp import (
    BulkAmqpError,
    Channel,
    Cluster,
    Connection,
    Consumer,
    Delivery,
    connect,
)

PREFETCH = 2000


class Arrivals:
    """What came of one origin's messages. Sequences count from 0."""

    def __init__(self) -> None:
        self.delivered = 0
        """Each message once."""
        self.duplicates = 0
        self.flagged_duplicates = 0
        """Of them, those that said that they may be some."""
        self.out_of_order = 0
        self.last_at_ns = 0
        """When the last first one came."""
        self._next = 0
        self._skipped: set[int] = set()

    def missing(self, sent: int, besides: Collection[int] = ()) -> int:
        """How many of the first `sent` have not come; those `besides` need not."""
        missing = max(0, sent - self._next) + sum(1 for number in self._skipped if number < sent)
        return missing - sum(1 for number in besides if number < sent and not self._has(number))

    def _has(self, number: int) -> bool:
        return number < self._next and number not in self._skipped

    def take(self, number: int, properties: bytes) -> bool:
        """Whether it is the first of that number."""
        if number == self._next:
            self._next += 1
        elif number > self._next:
            self._skipped.update(range(self._next, number))
            self._next = number + 1
        elif number in self._skipped:
            self._skipped.remove(number)
            self.out_of_order += 1
        else:
            self.duplicates += 1
            self.flagged_duplicates += REDELIVERED_HEADER in properties
            return False
        self.delivered += 1
        return True


class LoadSink:
    """One queue's. `strangers` counts messages that are not of this run.

    `ended` says why nothing comes any more; None while it consumes.
    """

    def __init__(
        self,
        uri: str | Cluster,
        run: bytes,
        queue: str,
        *,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.by_origin: dict[int, Arrivals] = {}
        self.latencies: dict[int, Latencies] = {}
        """By origin."""
        self.delivered = 0
        """First ones of all origins."""
        self.strangers = 0
        self.last_at_ns = 0
        """When the last first one came."""
        self.ended: BulkAmqpError | None = None
        self._uri, self._run, self._queue = uri, run, queue
        self._ssl_context = ssl_context
        self._connection: Connection | None = None
        self._consumer: Consumer | None = None

    async def open(self) -> Connection:
        """Connect; the caller may declare the queue on a channel of this connection."""
        self._connection = await connect(
            self._uri, name="isthmus load: sink", ssl_context=self._ssl_context
        )
        return self._connection

    async def channel(self) -> Channel:
        """Another one of that connection."""
        assert self._connection is not None
        return await self._connection.channel()

    async def consume(self, arguments: Mapping[str, str] | None = None) -> None:
        """Begin. `arguments` are the consumer's."""
        self._consumer = Consumer(await self.channel(), self._queue, self._take, on_ended=self._end)
        await self._consumer.start(prefetch=PREFETCH, arguments=arguments)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    def begin(self, run: bytes) -> None:
        """Forget what came; from now on messages of another run count."""
        self._run = run
        self.by_origin, self.latencies = {}, {}
        self.delivered = self.strangers = self.last_at_ns = 0

    def _end(self, reason: BulkAmqpError) -> None:
        self.ended = reason

    def _take(self, deliveries: list[Delivery]) -> None:
        now = time.monotonic_ns()
        ours = [each for each in deliveries if len(each[5]) >= HEAD_BYTES]
        self.strangers += len(deliveries) - len(ours)
        heads = b"".join([each[5][:HEAD_BYTES] for each in ours])
        times: dict[int, list[int]] = {}
        for (run, origin, number, sent_ns), delivery in zip(
            HEAD.iter_unpack(heads), ours, strict=True
        ):
            if run != self._run:
                self.strangers += 1
                continue
            arrivals = self.by_origin.get(origin)
            if arrivals is None:
                arrivals = self.by_origin[origin] = Arrivals()
                self.latencies[origin] = Latencies()
            if arrivals.take(number, delivery[4]):
                times.setdefault(origin, []).append(now - sent_ns)
        for origin, took in times.items():
            self.latencies[origin].add(took)
            self.by_origin[origin].last_at_ns = now
            self.delivered += len(took)
            self.last_at_ns = now
        assert self._consumer is not None
        self._consumer.ack(deliveries[-1][0])
