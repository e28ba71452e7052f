"""Publishing and consuming ends of a measurement."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable, Iterator, Sequence

from federation.brokers.addresses import AddressBook
from isthmus.bench.figures import Pair, Published, pair_of
from isthmus.bench.queues import BenchQueue, queue_name
from isthmus.bench.request import BenchRequest
from isthmus.load.messages import HalfRandom
from isthmus.load.sink import Arrivals, Latencies, LoadSink
from isthmus.load.source import LoadSource
from relay.bulk_amqp import BulkAmqpError, Cluster


class BrokerAway(Exception):
    """Broker of a site that cannot be used for the measurement."""

    def __init__(self, site: str, reason: object) -> None:
        self.site = site
        super().__init__(f"the broker of {site} cannot be used: {reason}")


class Ends:
    """Sources and sinks of one measurement; origins count in the order of `request.origins`."""

    def __init__(self, request: BenchRequest, book: AddressBook, run: bytes) -> None:
        """Make the ends without connecting. Raises AddressError, PasswordMissing."""
        self.request = request
        self.sources: dict[str, LoadSource] = {}
        self.sinks: dict[str, LoadSink] = {}
        self.queues: dict[str, BenchQueue] = {}
        self.began_ns = 0
        self._declared: list[str] = []
        for number, site in enumerate(request.origins):
            address = book.application(site)
            self.sources[site] = LoadSource(
                Cluster.of(address.uri, address.endpoints),
                run,
                number,
                request.exchange.name,
                HalfRandom(request.size),
                key=request.key.encode(),
                ssl_context=address.ssl_context,
            )
        name = queue_name(run, request.exchange)
        for site in request.destinations:
            address = book.application(site)
            self.queues[site] = BenchQueue(site, address, name, request.queue_type)
            self.sinks[site] = LoadSink(
                Cluster.of(address.uri, address.endpoints),
                run,
                name,
                ssl_context=address.ssl_context,
            )

    async def connect(self) -> None:
        """Connect to every broker; declare nothing yet. Raises BrokerAway."""
        ends: list[tuple[str, LoadSource | LoadSink]]
        ends = [*self.sources.items(), *self.sinks.items()]
        await _all(_connected(site, end) for site, end in ends)

    async def listen(self) -> None:
        """Declare a queue at every destination and consume from each. Raises BrokerAway."""
        await _all(map(self._listen, self.sinks))
        self.began_ns = time.monotonic_ns()

    async def _listen(self, site: str) -> None:
        sink, request = self.sinks[site], self.request
        try:
            self._declared.append(site)
            await self.queues[site].declare(await sink.channel(), request.exchange, request.key)
            await sink.consume()
        except BulkAmqpError as error:
            raise BrokerAway(site, error) from error

    async def close(self) -> list[str]:
        """Close all ends and delete the queues; return a line for each queue that remains."""
        everyone: Sequence[LoadSource | LoadSink] = [*self.sources.values(), *self.sinks.values()]
        await asyncio.gather(*(end.close() for end in everyone))
        return [one for one in await asyncio.gather(*map(self._delete, self._declared)) if one]

    async def _delete(self, site: str) -> str:
        queue = self.queues[site]
        why = await queue.delete()
        return f"{queue.name} at {site}: {why}" if why else ""

    # -- results ---------------------------------------------------------------------------------

    def published(self, site: str) -> Published:
        source = self.sources[site]
        return Published(source.sent, source.confirmed, frozenset(source.refused_numbers))

    def pairs(self) -> Iterator[Pair]:
        """Results by pair of sites so far."""
        for number, origin in enumerate(self.request.origins):
            published = self.published(origin)
            for destination in self.request.pairs[origin]:
                sink = self.sinks[destination]
                arrivals = sink.by_origin.get(number) or Arrivals()
                latencies = sink.latencies.get(number) or Latencies()
                yield pair_of(origin, destination, published, arrivals, latencies, self.began_ns)

    def has_room(self, origin: str) -> bool:
        """True if each destination lacks fewer than `ahead` messages of the origin."""
        number, source = self.request.origins.index(origin), self.sources[origin]
        expected = source.sent - source.refused
        return all(
            expected - (arrivals.delivered if arrivals else 0) < self.request.ahead
            for arrivals in (
                self.sinks[site].by_origin.get(number) for site in self.request.pairs[origin]
            )
        )

    @property
    def seconds(self) -> float:
        """Seconds since all sinks consume."""
        return (time.monotonic_ns() - self.began_ns) / 1e9

    @property
    def delivered(self) -> int:
        """First copies at all sites, of all origins."""
        return sum(sink.delivered for sink in self.sinks.values())

    @property
    def waiting(self) -> int:
        """Messages yet to arrive, counted at each site."""
        return sum(pair.missing for pair in self.pairs())

    def ended(self) -> dict[str, str]:
        """Failures of consumers by site."""
        return {site: str(sink.ended) for site, sink in self.sinks.items() if sink.ended}


async def _connected(site: str, end: LoadSource | LoadSink) -> None:
    try:
        await end.open()
    except BulkAmqpError as error:
        raise BrokerAway(site, error) from error


async def _all(several: Iterable[Awaitable[None]]) -> None:
    """Await all, then raise the first failure: the caller can close every end."""
    for failed in await asyncio.gather(*several, return_exceptions=True):
        if failed is not None:
            raise failed
