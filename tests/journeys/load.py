"""Load for journeys where things break: several flows a site, with and without identity, counted
at every other site and checked as a whole.

A stream of numbered messages is named by its origin and kind: `paris` has UUIDs for message IDs,
`paris/labelled` has other IDs, `paris/anonymous` has none, `paris/urgent` has none and priorities
from 0 to 9, and the messages of `paris/alike` are all the same. All are packed into the same flow;
each exchange has its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from federation.mesh import PriorityRule
from simulation.invariants import Arrived, check_site
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.traffic import TrafficSink, TrafficSource
from tests.waiting import until

KINDS = ("", "/labelled", "/anonymous", "/urgent", "/alike")
"""Suffix behind the origin in the name of a stream of that kind."""
NAMED, LABELLED, ANONYMOUS, URGENT, ALIKE = KINDS
ENDLESS = 1 << 62
"""Messages, until the load is told to end."""


def home(origin: str) -> str:
    """The cluster ID of the site where that stream is published."""
    return origin.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Stream:
    """One source's messages into one exchange."""

    exchange: str
    source: TrafficSource
    kind: str


@dataclass(slots=True)
class Load:
    """Made for a mesh: `start`, break things, `end`, `arrived`, `check`."""

    mesh: LiveMesh
    per_second: float = 60.0
    """Of each stream."""
    size: int = 200
    kinds: Sequence[str] = (NAMED, ANONYMOUS)
    streams: list[Stream] = field(default_factory=list)
    sinks: dict[tuple[str, str], TrafficSink] = field(default_factory=dict)
    _publishing: list[tuple[Stream, asyncio.Task[None]]] = field(default_factory=list)
    _left: list[int] = field(default_factory=list)
    _over: bool = False

    async def declare(self, **arguments: object) -> None:
        """Declare the queues that take what arrives, with these arguments; nobody consumes yet, so
        that a broker's restart brings nothing twice by itself.
        """
        mesh = self.mesh
        for site in mesh.mesh.sites:
            for name, exchange in mesh.mesh.exchanges.items():
                if (site, name) in self.sinks:
                    continue
                sink = TrafficSink(mesh.broker(site), mesh.cluster(site), exchange.delivers_to)
                sink.queue = f"sink.{name}"
                await sink.declare(**arguments)
                self.sinks[site, name] = sink

    def begin(self, sites: Iterable[str] = ()) -> None:
        """Publish at these sites (default: all), until `end`."""
        self._add_streams(sites or self.mesh.mesh.sites)
        self.go_on()

    def _add_streams(self, sites: Iterable[str], exchanges: Iterable[str] = ()) -> None:
        mesh = self.mesh
        for site in sites:
            for name in exchanges or mesh.mesh.exchanges:
                for kind in self.kinds:
                    source = TrafficSource(mesh.broker(site), mesh.cluster(site) + kind, name)
                    self.streams.append(Stream(name, source, kind))

    async def take_part(self, *sites: str, exchange: str = "") -> None:
        """The mesh has these sites too, or this exchange: listen, and publish there or to it."""
        before = set(self.sinks)
        await self.declare()
        for key in set(self.sinks) - before:
            self.sinks[key].resume()
        former = len(self.streams)
        self._add_streams(sites or self.mesh.mesh.sites, [exchange] if exchange else ())
        self._publish_more(self.streams[former:])

    async def leave(self, site: str) -> None:
        """End the publishers at a site; all that they sent is answered."""
        leaving = [s for s in self.streams if home(s.source.origin) == self.mesh.cluster(site)]
        self._left += [id(stream) for stream in leaving]
        await asyncio.gather(
            *(task for stream, task in self._publishing if id(stream) in self._left)
        )

    @contextlib.asynccontextmanager
    async def held(self, site: str) -> AsyncIterator[None]:
        """Publish nothing at a site while the block lasts; what was sent before is answered."""
        cluster = self.mesh.cluster(site)
        try:
            await self.leave(site)
            yield
        finally:
            held = [one for one in self._publishing if home(one[0].source.origin) == cluster]
            ids = {id(stream) for stream, _ in held}
            self._publishing = [one for one in self._publishing if id(one[0]) not in ids]
            self._left = [one for one in self._left if one not in ids]
            self._publish_more([stream for stream, _ in held])

    async def start(self, sites: Iterable[str] = ()) -> None:
        """Declare, consume and begin, for a mesh whose brokers live through it."""
        await self.declare()
        self.consume()
        self.begin(sites)

    def go_on(self) -> None:
        """Publish again after an `end`."""
        self._over = False
        self._publishing = []
        self._publish_more(self.streams)

    def _publish_more(self, streams: Sequence[Stream]) -> None:
        for stream in streams:
            name = f"load {stream.source.origin}"
            self._publishing.append((stream, asyncio.create_task(self._publish(stream), name=name)))

    async def _publish(self, stream: Stream) -> None:
        origin = stream.source.origin
        await stream.source.publish(
            ENDLESS,
            size=self.size,
            per_second=self.per_second,
            with_id=stream.kind == NAMED,
            label=(lambda number: f"{origin}-{number}") if stream.kind == LABELLED else None,
            priority=(lambda number: number % 10) if stream.kind == URGENT else None,
            is_alike=stream.kind == ALIKE,
            again_after_failure=True,
            chunk=max(1, int(self.per_second / 4)),
            going=lambda: not self._over and id(stream) not in self._left,
        )

    @property
    def published(self) -> int:
        return sum(len(stream.source.confirmed) for stream in self.streams)

    async def more(self, count: int, *, within_s: float = 60) -> None:
        """Wait until so many more were confirmed: the load goes on."""
        goal = self.published + count
        await until(
            lambda: self.published >= goal,
            lambda: f"{self.published} of {goal} published\n{self.mesh.logs()}",
            within_s,
        )

    async def end(self) -> None:
        """Stop publishing; everything sent so far is answered."""
        self._over = True
        await asyncio.gather(*(task for _, task in self._publishing))

    def consume(self) -> None:
        """Begin to take what has arrived, and what still will."""
        for sink in self.sinks.values():
            sink.resume()

    async def arrived(self, *, within_s: float = 60) -> None:
        """Wait until every confirmed message is at every other site."""
        expected = {
            key: {
                (stream.source.origin, number)
                for stream in self._for(key)
                if stream.kind != ALIKE
                for number in stream.source.confirmed
            }
            for key in self.sinks
        }
        alike = {
            key: Counter(
                {
                    stream.source.origin: len(stream.source.confirmed)
                    for stream in self._for(key)
                    if stream.kind == ALIKE
                }
            )
            for key in self.sinks
        }
        seen: dict[tuple[str, str], int] = dict.fromkeys(self.sinks, 0)

        def is_there() -> bool:
            for key, sink in self.sinks.items():
                sink.raise_if_failed()
                news = sink.arrived[seen[key] :]
                seen[key] += len(news)
                expected[key].difference_update((m.origin, m.number) for m in news)
                alike[key] -= Counter(m.origin for m in news if m.origin.endswith(ALIKE))
            return not any(expected.values()) and not any(alike.values())

        def what() -> str:
            waiting = {key: (len(left), min(left)) for key, left in expected.items() if left}
            return f"all there; missing: {waiting}, {alike}\n{self.mesh.logs()}"

        await until(is_there, what, within_s)

    def check(
        self,
        most_flags: Callable[[str, str], int] = lambda site, origin: 0,
        *,
        ordered: bool = True,
    ) -> dict[tuple[str, str], Counter[str]]:
        """The invariants at every sink, that of order if `ordered`. `most_flags` (site, cluster ID
        of origin) bounds the flagged copies of one flow, but for those that are all alike. Returns
        the flags by sink and stream.
        """
        flags: dict[tuple[str, str], Counter[str]] = {}
        for key, sink in self.sinks.items():
            site, exchange = key
            arrived = [m for m in sink.arrived if home(m.origin) != sink.site]
            sent = self._sent_to(key, arrived)
            flags[key] = Counter()
            for kind in self.kinds:
                some = [m for m in arrived if m.origin == home(m.origin) + kind]
                if kind == ALIKE:
                    flags[key] += self._check_alike(key, some)
                    continue
                sent_so = {name: it for name, it in sent.items() if name == home(name) + kind}
                is_ordered = ordered and (kind != URGENT or self._keeps_order(exchange))
                flags[key] += check_site(sink.site, some, sent_so, ordered=is_ordered)
            by_flow: Counter[str] = Counter()
            for origin, count in flags[key].items():
                if origin.endswith(ALIKE):
                    continue  # which of them a log had cannot be told
                by_flow[home(origin)] += count
            for origin, count in by_flow.items():
                most = most_flags(site, origin)
                assert count <= most, (
                    f"{count} flagged at {site} of {exchange} from {origin}, at most {most}"
                )
        return flags

    def _check_alike(self, key: tuple[str, str], arrived: Sequence[Arrived]) -> Counter[str]:
        """No fewer came than were confirmed, and no more without a flag than were sent."""
        came, flagged = (
            Counter(m.origin for m in arrived),
            Counter(m.origin for m in arrived if m.flagged),
        )
        for stream in self._for(key):
            source = stream.source
            if stream.kind == ALIKE:
                confirmed = len(source.confirmed)
                least, most = confirmed, confirmed + len(source.indeterminate)
                assert came[source.origin] >= least, f"I1 at {key}: {source.origin}"
                once = came[source.origin] - flagged[source.origin]
                assert once <= most, f"I2 at {key}: {once} of {most} from {source.origin}"
        return flagged

    def _keeps_order(self, exchange: str) -> bool:
        """True if priorities change nothing in the order of that exchange."""
        releases = [one.broker.installation.release for one in self.mesh.vhosts.values()]
        rule = self.mesh.mesh.exchanges[exchange].priorities
        return rule is PriorityRule.ORDER or all(release < (4, 0) for release in releases)

    def _for(self, key: tuple[str, str]) -> Sequence[Stream]:
        site, exchange = key
        cluster = self.mesh.cluster(site)
        return [
            stream
            for stream in self.streams
            if stream.exchange == exchange and home(stream.source.origin) != cluster
        ]

    def _sent_to(
        self, key: tuple[str, str], arrived: Sequence[Arrived]
    ) -> dict[str, dict[int, bytes]]:
        """What must be there, and of what was never answered for, what is."""
        got = {(m.origin, m.number) for m in arrived}
        sent: dict[str, dict[int, bytes]] = {}
        for stream in self._for(key):
            source = stream.source
            sent[source.origin] = source.confirmed | {
                number: body
                for number, body in source.indeterminate.items()
                if (source.origin, number) in got
            }
        return sent

    async def close(self) -> None:
        self._over = True
        tasks = [task for _, task in self._publishing]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for sink in self.sinks.values():
            await sink.close()
