"""The two ends of a measurement: a source where it publishes, a sink wherever it listens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable, Iterator, Sequence

from federation.brokers.addresses import AddressBook
from isthmus.bench.asked import Asked
from isthmus.bench.figures import Pair, Published, pair_of
from isthmus.bench.queues import BenchQueue, queue_name
from isthmus.load import Arrivals, HalfRandom, Latencies, LoadSink, LoadSource
from relay.bulk_amqp import BulkAmqpError, Cluster


class BrokerAway(Exception):
    """The broker of `site` cannot be used for a measurement; the reason says why."""

    def __init__(self, site: str, reason: object) -> None:
        self.site = site
        super().__init__(f"the broker of {site} cannot be used: {reason}")


class Ends:
    """Of one run. Origins are numbered in the order of `asked.origins`."""

    def __init__(self, asked: Asked, book: AddressBook, run: bytes) -> None:
        """Raises AddressError, PasswordMissing."""
        self.asked = asked
        self.sources: dict[str, LoadSource] = {}
        self.sinks: dict[str, LoadSink] = {}
        self.queues: dict[str, BenchQueue] = {}
        self.began_ns = 0
        self._declared: list[str] = []
        for number, site in enumerate(asked.origins):
            address = book.application(site)
            self.sources[site] = LoadSource(
                Cluster.of(address.uri, address.endpoints),
                run,
                number,
                asked.exchange.name,
                HalfRandom(asked.size),
                key=asked.key.encode(),
                ssl_context=address.ssl_context,
            )
        name = queue_name(run, asked.exchange)
        for site in asked.destinations:
            address = book.application(site)
            self.queues[site] = BenchQueue(site, address, name, asked.queue_type)
            self.sinks[site] = LoadSink(
                Cluster.of(address.uri, address.endpoints),
                run,
                name,
                ssl_context=address.ssl_context,
            )

    async def connect(self) -> None:
        """To every broker that it takes; nothing is there yet. Raises BrokerAway."""
        ends: list[tuple[str, LoadSource | LoadSink]]
        ends = [*self.sources.items(), *self.sinks.items()]
        await _all(_connected(site, end) for site, end in ends)

    async def listen(self) -> None:
        """At every site with a queue of its own. Raises BrokerAway."""
        await _all(map(self._listen, self.sinks))
        self.began_ns = time.monotonic_ns()

    async def _listen(self, site: str) -> None:
        sink, asked = self.sinks[site], self.asked
        try:
            self._declared.append(site)
            await self.queues[site].declare(await sink.channel(), asked.exchange, asked.key)
            await sink.consume()
        except BulkAmqpError as error:
            raise BrokerAway(site, error) from error

    async def close(self) -> list[str]:
        """Nothing of it is left at any broker; what is, and why."""
        everyone: Sequence[LoadSource | LoadSink] = [*self.sources.values(), *self.sinks.values()]
        await asyncio.gather(*(end.close() for end in everyone))
        return [one for one in await asyncio.gather(*map(self._delete, self._declared)) if one]

    async def _delete(self, site: str) -> str:
        queue = self.queues[site]
        why = await queue.delete()
        return f"{queue.name} at {site}: {why}" if why else ""

    # -- what has become of it -------------------------------------------------------------------

    def published(self, site: str) -> Published:
        source = self.sources[site]
        return Published(source.sent, source.confirmed, frozenset(source.refused_numbers))

    def pairs(self) -> Iterator[Pair]:
        """All of them, as they are now."""
        for number, origin in enumerate(self.asked.origins):
            published = self.published(origin)
            for destination in self.asked.pairs[origin]:
                sink = self.sinks[destination]
                arrivals = sink.by_origin.get(number) or Arrivals()
                latencies = sink.latencies.get(number) or Latencies()
                yield pair_of(origin, destination, published, arrivals, latencies, self.began_ns)

    def has_room(self, origin: str) -> bool:
        """Whether every site has had all but the latest of that origin's messages."""
        number, source = self.asked.origins.index(origin), self.sources[origin]
        expected = source.sent - source.refused
        return all(
            expected - (arrivals.delivered if arrivals else 0) < self.asked.ahead
            for arrivals in (
                self.sinks[site].by_origin.get(number) for site in self.asked.pairs[origin]
            )
        )

    @property
    def seconds(self) -> float:
        """Since all were open."""
        return (time.monotonic_ns() - self.began_ns) / 1e9

    @property
    def delivered(self) -> int:
        """First copies, at all sites, of all origins."""
        return sum(sink.delivered for sink in self.sinks.values())

    @property
    def waiting(self) -> int:
        """Messages that are still to arrive somewhere, counted at each site."""
        return sum(pair.missing for pair in self.pairs())

    def ended(self) -> dict[str, str]:
        """Why nothing comes any more, by site."""
        return {site: str(sink.ended) for site, sink in self.sinks.items() if sink.ended}


async def _connected(site: str, end: LoadSource | LoadSink) -> None:
    try:
        await end.open()
    except BulkAmqpError as error:
        raise BrokerAway(site, error) from error


async def _all(several: Iterable[Awaitable[None]]) -> None:
    """The first that failed is raised when all have come to an end, so that all can be closed."""
    for failed in await asyncio.gather(*several, return_exceptions=True):
        if failed is not None:
            raise failed
