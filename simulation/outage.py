"""Behaviour of a mesh while some of its links or sites are away, observed by running it.

The declared mesh runs in virtual time, with its real nodes, three times under the same small load:
whole, with the failure, and after it. Counts of the messages that reach each site and cross each
link scale to any rate and duration.
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

from federation.mesh import Exchange, Mesh, SigningRule
from federation.planning.log_spread import ALL_KEYS
from federation.slots import ONE_SLOT
from relay.batches.batch import BatchKind, BatchName
from relay.batches.format import decode_entries, read_header
from relay.bulk_amqp.content_header import DELIVERY_MODE, NONE_PRESENT, rewrite
from relay.delivery.local_exchange import Outgoing
from relay.links.wire import BatchFrame, FrameKind, decode_frame
from relay.operator.gaps import read_open_gaps
from simulation.load import origin_and_number
from simulation.virtual_time import run_in_virtual_time
from simulation.world import World

STEP_S = 0.5
"""Time between two messages of a flow."""
QUIET_S = 10.0
"""Wait after the last message: every message that has a way has come by then."""
LINE_DELAY_S = 0.02
SETTLED_WITHIN_S = 1800.0
MOST_STEPS = 8
FEWEST_STEPS = 2
MOST_DELIVERIES = 4000
"""Most deliveries in one of the three runs, if they leave `FEWEST_STEPS`: deliveries take the time.
"""
_NOTHING = 1e-9
"""Largest rest of a part that rounding leaves."""


class PublishedFlow(NamedTuple):
    """Messages of one site to one exchange, the unit of rates. Both fields are names."""

    exchange: str
    origin: str


class Failure(NamedTuple):
    """Failed links by their names, one way each, and failed sites with their brokers."""

    links: frozenset[str]
    sites: frozenset[str]


Parts = Mapping[PublishedFlow, float]
"""Share of each flow's messages; 1 is all. Flows without messages are left out."""


@dataclass(frozen=True, slots=True)
class OutageRecord:
    """Observed shares; of the messages published during the outage, unless a field has others."""

    messages: int
    """Number of messages that stood for all."""
    lacking: Mapping[str, Parts]
    """Messages that had not come when the outage ended, by site."""
    came: Mapping[str, Parts]
    """Messages that had come when the outage ended, by site."""
    came_by: Mapping[str, Mapping[PublishedFlow, frozenset[str]]]
    """Links over which each flow came during the outage, by site."""
    lost: Mapping[str, Parts]
    """Messages that never came, since logs had lost them, by site."""
    ways: Mapping[str, frozenset[str]]
    """Links over which a site got its lacking messages, by site."""
    held: Parts
    """Messages that the origin's egress queue held until the end of the outage."""
    gaps: tuple[tuple[str, str], ...]
    """Gaps, by site and the stage that stopped there for a person to accept the loss."""
    before: Mapping[str, Parts]
    """Messages carried before the outage, by link."""
    meanwhile: Mapping[str, Parts]
    caught_up: Mapping[str, Parts]
    """Messages carried after the outage, by link."""


class _Message(NamedTuple):
    """Message of a run; `part` is the share of the flow's messages that it stands for."""

    flow: PublishedFlow
    part: float


@dataclass(slots=True)
class _Phase:
    """One of the three runs; messages by their numbers."""

    published: dict[int, _Message] = field(default_factory=dict)
    carried: dict[str, set[int]] = field(default_factory=dict)
    """Numbers of the messages that each link carried."""
    ends: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    """State at each step: the past part of the time, and each site's next log offset."""

    def parts(self, numbers: Iterable[int]) -> Parts:
        """Return the share of each flow that the messages stand for."""
        found: dict[PublishedFlow, float] = {}
        for flow, part in map(self.published.__getitem__, sorted(numbers)):
            found[flow] = found.get(flow, 0.0) + part
        return found


def away(mesh: Mesh, failure: Failure) -> frozenset[str]:
    """Return the links that carry nothing: failed themselves, or with a sender, receiver or meeting
    broker at a failed site.
    """
    return failure.links | {
        link.name
        for link in mesh.links
        if failure.sites.intersection((link.sender, link.receiver, link.meeting))
    }


def observe_outage(
    mesh: Mesh,
    flows: Collection[PublishedFlow],
    failure: Failure,
    kept: Mapping[str, float],
    progress: Callable[[str], None] = lambda _: None,
) -> OutageRecord:
    """Run the outage and return the observed shares. Raise NotInTime if the mesh does not come to
    rest.

    `kept` is, by site, the share of the log's growth during the outage that is left at its end, 0
    to 1: the latest; below 1 retention is at work. `progress` is called with each phase. The same
    arguments give the same result.
    """
    keys = {exchange.name: keys_of(mesh, exchange) for exchange in mesh.exchanges.values()}
    apart = sum(len(keys[flow.exchange]) for flow in flows)
    afford = MOST_DELIVERIES // max(1, apart * len(mesh.sites))
    steps = max(FEWEST_STEPS, min(MOST_STEPS, afford))
    with tempfile.TemporaryDirectory(prefix="isthmus-outage-") as folder:
        one = _OutageRun(_in_memory(mesh), Path(folder), sorted(flows), keys, progress)
        return run_in_virtual_time(one.run(failure, kept, steps))


def _in_memory(mesh: Mesh) -> Mesh:
    """Return the mesh with brokers that need no addresses or passwords, and without lanes, slots
    and rates, which affect only order and time; without signatures, whose keys are elsewhere; and
    without a group, as if the links had to bring all.
    """
    return replace(
        mesh,
        sites={
            name: replace(site, broker=None, admin=None, max_rate=None, slots=ONE_SLOT)
            for name, site in mesh.sites.items()
        },
        links=tuple(replace(link, via=None, max_rate=None) for link in mesh.links),
        lanes=(),
        signing=SigningRule.NONE,
        group=None,
    )


class _OutageRun:
    def __init__(
        self,
        mesh: Mesh,
        folder: Path,
        flows: Sequence[PublishedFlow],
        keys: Mapping[str, Sequence[str]],
        progress: Callable[[str], None],
    ) -> None:
        self._mesh, self._folder, self._flows = mesh, folder, flows
        self._keys, self._progress = keys, progress
        self._names = {site.cluster_id: name for name, site in mesh.sites.items()}
        self._last = 0
        """Number of the latest message."""
        self._present = _Phase()
        self._away: frozenset[str] = frozenset()
        self._in_batch: dict[BatchName, list[int]] = {}

    async def run(self, failure: Failure, kept: Mapping[str, float], steps: int) -> OutageRecord:
        # Randomness only spreads attempts and names.
        world = World(self._mesh, self._folder, random.Random(1))
        for node in world.nodes.values():
            node.on_written = _check_nothing
        for crossing in world.network.crossings.values():
            crossing.line.delay_s = LINE_DELAY_S
            crossing.meeting.on_heard = _check_nothing
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
        self._progress("the mesh starts")
        world.start()
        await _at_rest(world)
        self._progress("nothing is away")
        whole = await self._publish(world, even, ())
        await _at_rest(world)
        # A site is due the flows that reached it in the whole mesh.
        due = {site: whole.parts(came) for site, came in self._come(world, whole).items()}

        self._progress("the outage")
        self._away = away(self._mesh, failure)
        _fail(world, failure)
        kept = {site: kept[site] for site in self._mesh.sites if site not in failure.sites}
        # A step ends where retention begins: a message's whole share is there, or is eaten.
        cuts = sorted({*even, *(1 - part for part in kept.values() if 0 < part < 1)})
        outage = await self._publish(world, cuts, failure.sites)
        await asyncio.sleep(QUIET_S)
        had = self._come(world, outage)
        held = outage.parts(_waiting(world, outage))
        await _eat(world, outage, kept)

        self._progress("catching up")
        self._away = frozenset()
        self._present = after = _Phase(outage.published)
        gaps: set[tuple[str, str]] = set()
        await _mend(world, failure)
        await _at_rest(world, lambda: gaps.update(_gaps(world)))
        came = self._come(world, outage)

        def lacks(has: Mapping[str, set[int]]) -> dict[str, Parts]:
            return {
                site: _lacking(parts, outage.parts(has[site]), failure.sites)
                for site, parts in due.items()
            }

        def carried(run: _Phase) -> dict[str, Parts]:
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

    async def _publish(self, world: World, cuts: Sequence[float], away: Collection[str]) -> _Phase:
        """Publish a message of each flow and key in each part of the time; `cuts` end the parts."""
        self._present = now = _Phase()
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
        """Count a batch's messages at the link's meeting broker, unless the link is away."""
        if frame[1] == FrameKind.BATCH and link not in self._away:
            decoded = decode_frame(frame)
            assert isinstance(decoded, BatchFrame)
            carried = self._present.carried.setdefault(link, set())
            carried.update(self._present.published.keys() & self._numbers(decoded.batch))
        return (frame,)

    def _numbers(self, batch: memoryview) -> list[int]:
        header = read_header(batch)
        if header.kind is not BatchKind.MESSAGES:
            return []
        if header.name not in self._in_batch:
            entries = decode_entries(batch)
            self._in_batch[header.name] = [origin_and_number(entry.body)[1] for entry in entries]
        return self._in_batch[header.name]

    def _come(self, world: World, run: _Phase) -> dict[str, set[int]]:
        """Return, by site, the run's messages of other sites that it has."""
        found: dict[str, set[int]] = {site: set() for site in self._mesh.sites}
        for by_site in world.applications.arrived.values():
            for site, some in by_site.items():
                numbers = {one.number for one in some} & run.published.keys()
                found[site] |= {n for n in numbers if run.published[n].flow.origin != site}
        return found

    def _ways(
        self, world: World, site: str, run: _Phase, numbers: set[int]
    ) -> dict[PublishedFlow, frozenset[str]]:
        """Return the links over which the messages came to the site, by flow."""
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
    """Return a routing key for each kind of message that the sites' `wants` tell apart."""
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
    """Return a key that matches the topic pattern."""
    words = (word for word in pattern.split(".") if word != "#")
    return ".".join("any" if word == "*" else word for word in words)


def _lacking(due: Parts, has: Parts, away: Collection[str]) -> Parts:
    """Return the lacking shares; a site that is away publishes nothing."""
    return {
        flow: lacks
        for flow, part in due.items()
        if flow.origin not in away and (lacks := part - has.get(flow, 0.0)) > _NOTHING
    }


async def _at_rest(world: World, look: Callable[[], None] = lambda: None) -> None:
    """Wait until no node has anything left to do. Raise NotInTime."""

    def rests() -> bool:
        look()
        return not any(broker.waiting for broker in world.brokers.values()) and world.is_at_rest()

    await world.until(rests, lambda: str(world.before_nodes()), SETTLED_WITHIN_S)
    await asyncio.sleep(STEP_S)


def _waiting(world: World, run: _Phase) -> set[int]:
    """Return the messages in egress queues, handed out ones included: the last of each flow."""
    found: set[int] = set()
    for site, broker in world.brokers.items():
        for exchange, queues in broker.exchanges.egress_of.items():
            flow = PublishedFlow(exchange, site)
            published = [n for n, one in run.published.items() if one.flow == flow]
            waiting = sum(map(broker.egress.depth, queues))
            found.update(published[max(0, len(published) - waiting) :])
    return found


async def _eat(world: World, outage: _Phase, kept: Mapping[str, float]) -> None:
    """Let retention eat the records that are too old at the end of the outage."""
    eaten = {site: 1 - part for site, part in kept.items() if part < 1}
    for site in eaten:
        # The messages that these few stand for would have left the node's memory long ago.
        await world.nodes[site].stop()
    for site, part in eaten.items():
        log = world.logs[site]
        # The last record stays, as the segment being written would.
        first = max(ends[site] for before, ends in outage.ends if before <= part + _NOTHING)
        keep = sum(one.offset >= first for one in log.stream.records) if part < 1 else 1
        world.eat(log, max(1, keep))
        world.nodes[site].start()


def _gaps(world: World) -> Iterable[tuple[str, str]]:
    for name, node in world.nodes.items():
        for gap in read_open_gaps(node.folder):
            yield name, gap.key


def _fail(world: World, failure: Failure) -> None:
    crossings = world.network.crossings
    for name in sorted(failure.sites):
        world.nodes[name].kill()
        world.brokers[name].go_away()
        for crossing in crossings.values():
            if crossing.link.meeting == name:
                crossing.meeting.close_all("the broker went away")
    for name in sorted(failure.links):
        crossings[name].cut()
        # At once, not after twenty idle seconds.
        crossings[name].meeting.silence_noticed()


async def _mend(world: World, failure: Failure) -> None:
    for name in sorted(failure.links):
        world.network.crossings[name].mend()
    for name in sorted(failure.sites):
        world.brokers[name].come_back()
        await world.nodes[name].died()
        world.nodes[name].start()


def _check_nothing() -> None:
    """Skip the checks of every step: other simulations make them."""
