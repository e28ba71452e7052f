"""Consuming end of a measurement at one site."""

from __future__ import annotations

import math
import ssl
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from isthmus.load.messages import HEAD, HEAD_BYTES
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

_PER_E = 100
"""Buckets for a factor of e: each is one per cent wide."""


class Latencies:
    """Latencies within one per cent, in constant memory; added in nanoseconds, read in
    milliseconds.
    """

    def __init__(self) -> None:
        self.count = 0
        self._longest_ns = 0
        self._buckets: Counter[int] = Counter()

    def add(self, times_ns: Sequence[int]) -> None:
        if not times_ns:
            return
        log = math.log
        self._buckets.update([int(log(time) * _PER_E) if time > 1 else 0 for time in times_ns])
        self.count += len(times_ns)
        self._longest_ns = max(self._longest_ns, max(times_ns))

    def merge(self, other: Latencies) -> None:
        """Add all latencies of another instance."""
        self._buckets.update(other._buckets)
        self.count += other.count
        self._longest_ns = max(self._longest_ns, other._longest_ns)

    @property
    def longest_ms(self) -> float:
        """Exact maximum, or 0 without messages."""
        return self._longest_ns / 1e6

    def percentile_ms(self, percent: float) -> float:
        """Return the percentile, or NaN without messages."""
        if not self.count:
            return math.nan
        rank = max(1, math.ceil(self.count * percent / 100))
        for bucket in sorted(self._buckets):
            rank -= self._buckets[bucket]
            if rank <= 0:
                return min(math.exp((bucket + 0.5) / _PER_E) / 1e6, self.longest_ms)
        raise AssertionError("fewer in the buckets than were counted")


PREFETCH = 2000


class Arrivals:
    """Arrivals of one origin's messages; sequences count from 0."""

    def __init__(self) -> None:
        self.delivered = 0
        """Messages that arrived, each counted once."""
        self.duplicates = 0
        self.flagged_duplicates = 0
        """Duplicates with the redelivery header."""
        self.out_of_order = 0
        self.last_at_ns = 0
        """Time of the last first copy."""
        self._next = 0
        self._skipped: set[int] = set()

    def missing(self, sent: int, besides: Collection[int] = ()) -> int:
        """Return how many of the first `sent` messages are missing, except those in `besides`."""
        missing = max(0, sent - self._next) + sum(1 for number in self._skipped if number < sent)
        return missing - sum(1 for number in besides if number < sent and not self._has(number))

    def _has(self, number: int) -> bool:
        return number < self._next and number not in self._skipped

    def take(self, number: int, properties: bytes) -> bool:
        """Count a copy; True if it is the first of its message."""
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


class RunArrivals:
    """Arrivals of one run at one site, from a broker of any kind.

    `strangers` counts messages of other runs. `ended` is the failure that ended consuming, or None.
    """

    def __init__(self, run: bytes) -> None:
        self.by_origin: dict[int, Arrivals] = {}
        self.latencies: dict[int, Latencies] = {}
        """Latencies by origin."""
        self.delivered = 0
        """First copies of all origins."""
        self.strangers = 0
        self.last_at_ns = 0
        """Time of the last first copy."""
        self.ended: Exception | None = None
        self._run = run

    def begin(self, run: bytes) -> None:
        """Discard all counts; from now on messages of the new run count."""
        self._run = run
        self.by_origin, self.latencies = {}, {}
        self.delivered = self.strangers = self.last_at_ns = 0

    def count(self, copies: Sequence[tuple[bytes, bytes]]) -> None:
        """Count copies that arrived just now: properties and body of each."""
        now = time.monotonic_ns()
        ours = [copy for copy in copies if len(copy[1]) >= HEAD_BYTES]
        self.strangers += len(copies) - len(ours)
        heads = b"".join([body[:HEAD_BYTES] for _, body in ours])
        times: dict[int, list[int]] = {}
        for (run, origin, number, sent_ns), copy in zip(HEAD.iter_unpack(heads), ours, strict=True):
            if run != self._run:
                self.strangers += 1
                continue
            arrivals = self.by_origin.get(origin)
            if arrivals is None:
                arrivals = self.by_origin[origin] = Arrivals()
                self.latencies[origin] = Latencies()
            if arrivals.take(number, copy[0]):
                times.setdefault(origin, []).append(now - sent_ns)
        for origin, took in times.items():
            self.latencies[origin].add(took)
            self.by_origin[origin].last_at_ns = now
            self.delivered += len(took)
            self.last_at_ns = now


class LoadSink(RunArrivals):
    """Consumer of one queue."""

    def __init__(
        self,
        uri: str | Cluster,
        run: bytes,
        queue: str,
        *,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(run)
        self._uri, self._queue = uri, queue
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
        """Open a further channel of the connection."""
        assert self._connection is not None
        return await self._connection.channel()

    async def consume(self, arguments: Mapping[str, str] | None = None) -> None:
        """Start consuming with the consumer arguments."""
        self._consumer = Consumer(await self.channel(), self._queue, self._take, on_ended=self._end)
        await self._consumer.start(prefetch=PREFETCH, arguments=arguments)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    def _end(self, reason: BulkAmqpError) -> None:
        self.ended = reason

    def _take(self, deliveries: Sequence[Delivery]) -> None:
        self.count([(delivery[4], delivery[5]) for delivery in deliveries])
        assert self._consumer is not None
        self._consumer.ack(deliveries[-1][0])
