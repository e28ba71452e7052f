"""What a mesh does while some of its links or sites are away, found out by letting it happen.

The declared mesh runs in virtual time, its nodes the real ones, three times under the same small
load: whole, with what fails cut off, and when that is back. Which messages come where meanwhile,
and which link carries how many of them, is counted; the whole of it stands for any rate and time.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from federation.mesh import Exchange, Mesh
from federation.planning.log_spread import ALL_KEYS
from relay.batches.batch import BatchKind, BatchName
from relay.batches.format import decode_entries, read_header
from relay.bulk_amqp.content_header import DELIVERY_MODE, NONE_PRESENT, rewrite
from relay.delivery.local_exchange import Outgoing
from relay.links.wire import BatchFrame, FrameKind, decode_frame
from relay.operator.gaps import read_open_gaps
from simulation.load import which_of
from simulation.virtual_time import run_in_virtual_time
from simulation.world import World

STEP_S = 0.5
"""Between two messages of a flow."""
QUIET_S = 10.0
"""After the last one: whatever still has a way has come by then."""
LINE_DELAY_S = 0.02
SETTLED_WITHIN_S = 1800.0
MOST_STEPS = 8
FEWEST_STEPS = 2
MOST_DELIVERIES = 4000
"""In one of the three runs, if that leaves `FEWEST_STEPS`: it is what takes time."""
_NOTHING = 1e-9
"""What is left of a part by rounding."""


class PublishedFlow(NamedTuple):
    """What one site publishes to one exchange: the unit of rates. Both are names."""

    exchange: str
    origin: str


class Failure(NamedTuple):
    """What is away: links by their names, one way each, and sites with their brokers."""

    links: frozenset[str]
    sites: frozenset[str]


Parts = Mapping[PublishedFlow, float]
"""Of each flow's messages, how many: 1 is all of them. Flows without any are left out."""


@dataclass(frozen=True, slots=True)
class OutageRecord:
    """What was seen; of the messages that were published during the outage, where nothing else is
    said.
    """

    messages: int
    """So many stood for all."""
    lacking: Mapping[str, Parts]
    """By site: what had not come when the outage ended."""
    came: Mapping[str, Parts]
    """By site: what had."""
    came_by: Mapping[str, Mapping[PublishedFlow, frozenset[str]]]
    """By site: the links over which each flow came meanwhile."""
    lost: Mapping[str, Parts]
    """By site: what never came, since logs did not have it any more."""
    ways: Mapping[str, frozenset[str]]
    """By site: the links over which it got what it had lacked."""
    held: Parts
    """What its origin's egress queue held until the end of the outage."""
    gaps: tuple[tuple[str, str], ...]
    """Site, and the stage that stopped there for a person to accept what is gone."""
    before: Mapping[str, Parts]
    """By link: what it carried of messages that were published when nothing was away."""
    meanwhile: Mapping[str, Parts]
    caught_up: Mapping[str, Parts]
    """By link: what it carried when the outage was over."""


class _Message(NamedTuple):
    """`part`: of all of its flow's messages in that run, how many it stands for."""

    flow: PublishedFlow
    part: float


@dataclass(slots=True)
class _Run:
    """One of the three. Messages by their numbers."""

    published: dict[int, _Message] = field(default_factory=dict)
    carried: dict[str, set[int]] = field(default_factory=dict)
    """By link."""
    ends: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    """At each step: the part of the time that is over; by site, its log's next offset."""

    def parts(self, numbers: Iterable[int]) -> Parts:
        """How much of each flow these are."""
        found: dict[PublishedFlow, float] = {}
        for flow, part in map(self.published.__getitem__, sorted(numbers)):
            found[flow] = found.get(flow, 0.0) + part
        return found


def away(mesh: Mesh, failure: Failure) -> frozenset[str]:
    """The links that carry nothing, be it since a site is away that they begin, end or meet at."""
    return failure.links | {
        link.name
        for link in mesh.links
        if failure.sites.intersection((link.sender, link.receiver, link.meeting))
    }


def watch(
    mesh: Mesh,
    flows: Collection[PublishedFlow],
    failure: Failure,
    kept: Mapping[str, float],
    tell: Callable[[str], None] = lambda _: None,
) -> OutageRecord:
    """`kept`: by site, of what its log gets during the outage, how much it still has at the end,
    0 to 1: the latest; below 1 retention is at work. `tell` is told how far it is. The same
    arguments give the same result. Raises NotInTime if the mesh does not come to rest.
    """
    keys = {exchange.name: keys_of(mesh, exchange) for exchange in mesh.exchanges.values()}
    apart = sum(len(keys[flow.exchange]) for flow in flows)
    afford = MOST_DELIVERIES // max(1, apart * len(mesh.sites))
    steps = max(FEWEST_STEPS, min(MOST_STEPS, afford))
    with tempfile.TemporaryDirectory(prefix="isthmus-outage-") as folder:
        one = _Watch(_in_memory(mesh), Path(folder), sorted(flows), keys, tell)
        return run_in_virtual_time(one.run(failure, kept, steps))


def _in_memory(mesh: Mesh) -> Mesh:
    """The same with brokers that need no addresses or passwords; and without lanes and rates, which
    say what comes first and when, not what comes.
    """
    return replace(
        mesh,
        sites={
            name: replace(site, broker=None, admin=None, max_rate=None)
            for name, site in mesh.sites.items()
        },
        links=tuple(replace(link, via=None, max_rate=None) for link in mesh.links),
        lanes=(),
    )


class _Watch:
    def __init__(
        self,
        mesh: Mesh,
        folder: Path,
        flows: Sequence[PublishedFlow],
        keys: Mapping[str, Sequence[str]],
        tell: Callable[[str], None],
    ) -> None:
        self._mesh, self._folder, self._flows = mesh, folder, flows
        self._keys, self._tell = keys, tell
        self._names = {site.cluster_id: name for name, site in mesh.sites.items()}
        self._last = 0
        """The number of the message that was published last."""
        self._present = _Run()
        self._away: frozenset[str] = frozenset()
        self._in_batch: dict[BatchName, list[int]] = {}

    async def run(self, failure: Failure, kept: Mapping[str, float], steps: int) -> OutageRecord:
        # Whatever is drawn only spreads attempts and names.
        world = World(self._mesh, self._folder, random.Random(1))
        for site in world.sites.values():
            site.on_written = _pass
        for crossing in world.network.crossings.values():
            crossing.line.delay_s = LINE_DELAY_S
            crossing.meeting.on_heard = _pass
            crossing.meeting.tamper_data = partial(self._crosses, crossing.link.name)
        operator = asyncio.create_task(world.operate())
        try:
            return await self._phases(world, failure, kept, steps)
        finally:
            operator.cancel()
            await world.kill()

    async def _phases(
        self, world: World, failure: Failure, kept: Mapping[str, float], steps: int
    ) -> OutageRecord:
        even = [n / steps for n in range(1, steps + 1)]
        self._tell("the mesh starts")
        world.start()
        await _at_rest(world)
        self._tell("nothing is away")
        whole = await self._publish(world, even, ())
        await _at_rest(world)
        # Whoever got something is to get it.
        due = {site: whole.parts(came) for site, came in self._come(world, whole).items()}

        self._tell("the outage")
        self._away = away(self._mesh, failure)
        _fail(world, failure)
        kept = {site: kept[site] for site in self._mesh.sites if site not in failure.sites}
        # Where retention begins, a step ends: what a message stands for is there, or is eaten.
        cuts = sorted({*even, *(1 - part for part in kept.values() if 0 < part < 1)})
        outage = await self._publish(world, cuts, failure.sites)
        await asyncio.sleep(QUIET_S)
        had = self._come(world, outage)
        held = outage.parts(_waiting(world, outage))
        await _eat(world, outage, kept)

        self._tell("catching up")
        self._away = frozenset()
        self._present = after = _Run(outage.published)
        gaps: set[tuple[str, str]] = set()
        await _mend(world, failure)
        await _at_rest(world, lambda: gaps.update(_gaps(world)))
        came = self._come(world, outage)

        def lacks(has: Mapping[str, set[int]]) -> dict[str, Parts]:
            return {
                site: _without(parts, outage.parts(has[site]), failure.sites)
                for site, parts in due.items()
            }

        def carried(run: _Run) -> dict[str, Parts]:
            return {link: run.parts(numbers) for link, numbers in run.carried.items()}

        return OutageRecord(
            len(outage.published),
            lacks(had),
            {site: outage.parts(numbers) for site, numbers in had.items()},
            {site: self._ways(world, site, outage, numbers) for site, numbers in had.items()},
            lacks(came),
            {
                site: frozenset().union(
                    *self._ways(world, site, outage, numbers - had[site]).values()
                )
                for site, numbers in came.items()
            },
            held,
            tuple(sorted(gaps)),
            carried(whole),
            carried(outage),
            carried(after),
        )

    async def _publish(self, world: World, cuts: Sequence[float], away: Collection[str]) -> _Run:
        """For each part of the time, which `cuts` end, a message of each flow and key."""
        self._present = now = _Run()
        before = 0.0
        for cut in cuts:
            ends = {name: broker.stream.next_offset for name, broker in world.brokers.items()}
            now.ends.append((before, ends))
            for flow in self._flows:
                if flow.origin in away:
                    continue
                keys = self._keys[flow.exchange]
                for key in keys:
                    self._last += 1
                    now.published[self._last] = _Message(flow, (cut - before) / len(keys))
                    self._publish_one(world, flow, key)
            before = cut
            await asyncio.sleep(STEP_S)
        return now

    def _publish_one(self, world: World, flow: PublishedFlow, key: str) -> None:
        body = f"{self._mesh.sites[flow.origin].cluster_id}/{self._last} ".encode()
        made = Outgoing(key.encode(), rewrite(NONE_PRESENT, {DELIVERY_MODE: 2}), body)
        world.brokers[flow.origin].publish(flow.exchange, made)

    def _crosses(self, link: str, frame: bytes) -> Sequence[bytes]:
        """A frame comes to the broker that the link's ends meet at; away, it goes no further."""
        if frame[1] == FrameKind.BATCH and link not in self._away:
            said = decode_frame(frame)
            assert isinstance(said, BatchFrame)
            carried = self._present.carried.setdefault(link, set())
            carried.update(self._present.published.keys() & self._numbers(said.batch))
        return (frame,)

    def _numbers(self, batch: memoryview) -> list[int]:
        header = read_header(batch)
        if header.kind is not BatchKind.MESSAGES:
            return []
        if header.name not in self._in_batch:
            entries = decode_entries(batch)
            self._in_batch[header.name] = [which_of(entry.body)[1] for entry in entries]
        return self._in_batch[header.name]

    def _come(self, world: World, run: _Run) -> dict[str, set[int]]:
        """By site: which of that run's messages of others it has."""
        found: dict[str, set[int]] = {site: set() for site in self._mesh.sites}
        for by_site in world.applications.arrived.values():
            for site, some in by_site.items():
                numbers = {one.number for one in some} & run.published.keys()
                found[site] |= {n for n in numbers if run.published[n].flow.origin != site}
        return found

    def _ways(
        self, world: World, site: str, run: _Run, numbers: set[int]
    ) -> dict[PublishedFlow, frozenset[str]]:
        """The links over which these messages came to the site, by flow."""
        found: dict[PublishedFlow, frozenset[str]] = {}
        for by_site in world.applications.arrived.values():
            for one in by_site[site]:
                if one.number in numbers:
                    names = [self._names[cluster_id] for cluster_id in one.path]
                    links = {f"{a}-{b}" for a, b in pairwise([*names, site]) if a != b}
                    flow = run.published[one.number].flow
                    found[flow] = found.get(flow, frozenset()) | links
        return found


def keys_of(mesh: Mesh, exchange: Exchange) -> list[str]:
    """A routing key for each kind of message that sites' `wants` tell apart; at least one."""
    narrowed = {
        frozenset(patterns): sorted(patterns)[0]
        for name, site in mesh.sites.items()
        if exchange.reaches(name)
        and (patterns := site.wants.get(exchange.name)) is not None
        and ALL_KEYS not in patterns
    }
    if exchange.type != "topic":
        return list(narrowed.values()) or ["key"]
    return [_key_like(pattern) for pattern in narrowed.values()] or ["key"]


def _key_like(pattern: str) -> str:
    """A key that the topic pattern matches."""
    words = (word for word in pattern.split(".") if word != "#")
    return ".".join("any" if word == "*" else word for word in words)


def _without(due: Parts, has: Parts, away: Collection[str]) -> Parts:
    """What lacks; a site that is away publishes nothing."""
    return {
        flow: lacks
        for flow, part in due.items()
        if flow.origin not in away and (lacks := part - has.get(flow, 0.0)) > _NOTHING
    }


async def _at_rest(world: World, look: Callable[[], None] = lambda: None) -> None:
    """Until nothing is before any node. Raises NotInTime."""

    def rests() -> bool:
        look()
        return not any(broker.waiting for broker in world.brokers.values()) and world.is_at_rest()

    await world.until(rests, lambda: str(world.before_nodes()), SETTLED_WITHIN_S)
    await asyncio.sleep(STEP_S)


def _waiting(world: World, run: _Run) -> set[int]:
    """Which messages are in egress queues, handed out ones included: the last of each flow."""
    found: set[int] = set()
    for site, broker in world.brokers.items():
        for exchange, queue in broker.exchanges.egress_of.items():
            flow = PublishedFlow(exchange, site)
            published = [n for n, one in run.published.items() if one.flow == flow]
            found.update(published[max(0, len(published) - broker.egress.depth(queue)) :])
    return found


async def _eat(world: World, outage: _Run, kept: Mapping[str, float]) -> None:
    """Retention eats what is too old when the outage ends."""
    eaten = {site: 1 - part for site, part in kept.items() if part < 1}
    for site in eaten:
        # What these few messages stand for would have left its memory long ago.
        await world.sites[site].stop()
    for site, part in eaten.items():
        broker = world.brokers[site]
        # The last record stays, as the segment that is being written does.
        first = max(ends[site] for before, ends in outage.ends if before <= part + _NOTHING)
        keep = sum(one.offset >= first for one in broker.stream.records) if part < 1 else 1
        world.eat(broker, max(1, keep))
        world.sites[site].start()


def _gaps(world: World) -> Iterable[tuple[str, str]]:
    for name, site in world.sites.items():
        for gap in read_open_gaps(site.folder):
            yield name, gap.key


def _fail(world: World, failure: Failure) -> None:
    crossings = world.network.crossings
    for name in sorted(failure.sites):
        world.sites[name].kill()
        world.brokers[name].go_away()
        for crossing in crossings.values():
            if crossing.link.meeting == name:
                crossing.meeting.close_all("the broker went away")
    for name in sorted(failure.links):
        crossings[name].cut()
        # Not after twenty seconds in which nothing else happens.
        crossings[name].meeting.silence_noticed()


async def _mend(world: World, failure: Failure) -> None:
    for name in sorted(failure.links):
        world.network.crossings[name].mend()
    for name in sorted(failure.sites):
        world.brokers[name].come_back()
        await world.sites[name].died()
        world.sites[name].start()


def _pass() -> None:
    """What holds at every step is looked at elsewhere."""
