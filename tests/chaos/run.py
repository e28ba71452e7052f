"""One run: the mesh stands up, faults strike as the schedule says, all is healed, drains, and is
accounted for.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isthmus.local_brokers import RabbitMQInstallation
from relay.bulk_amqp import connect
from tests.chaos.account import Account, Published, SiteBooks, account
from tests.chaos.faults import STRIKES
from tests.chaos.schedule import KINDS, Fault
from tests.chaos.timeline import Sample, Timeline, sampled
from tests.chaos.world import SITES, World, standing
from tests.journeys.books import check_rows
from tests.journeys.traffic import TrafficSink
from tests.live_brokers import START_WITHIN_S
from tests.waiting import until
from wan_proxy import LAN

BESIDE_BACKLOG_S = 30.0
BACKLOG_FACTOR = 1.5
STANDS_FOR_S = 5.0
"""Drained is what is so for this long: nodes ask their broker for egress every four seconds."""
STOPS_WITHIN_S = 60.0
LOOK_EVERY_S = 0.5
QUIET_BEFORE_S = 3.0
"""Of load before the first fault may strike."""


@dataclass(slots=True)
class Drain:
    """After the last fault was healed and the load had ended."""

    backlog: int = 0
    """Messages that the site with the most of them had still to be given."""
    live_per_s: float = 0.0
    """Confirmed to publishers at all sites while faults struck."""
    took_s: float | None = None
    """None if it was not in time."""

    @property
    def deadline_s(self) -> float:
        return BACKLOG_FACTOR * self.backlog / max(self.live_per_s, 1.0) + BESIDE_BACKLOG_S


@dataclass(slots=True)
class Outcome:
    """What there is to tell of a run."""

    timeline: Timeline
    schedule: Sequence[Fault]
    graph: str
    rabbitmq: str
    """Its version."""
    account: Account = field(default_factory=Account)
    drain: Drain = field(default_factory=Drain)
    published: dict[str, dict[str, int]] = field(default_factory=dict)
    """By site: confirmed, refused, indeterminate."""
    brought: dict[str, int] = field(default_factory=dict)
    """By site: messages from elsewhere at the queue that no fault struck."""

    @property
    def broken(self) -> list[str]:
        return self.account.broken


Say = Callable[[str], None]


async def run(
    folder: Path,
    installation: RabbitMQInstallation,
    graph: str,
    schedule: Sequence[Fault],
    *,
    seed: int,
    per_second: float,
    say: Say,
    seen: Callable[[Sample], None],
) -> Outcome:
    """Play a schedule against a mesh in `folder`; `say` gets what happens, `seen` each sample."""
    loop = asyncio.get_running_loop()
    say(f"{len(SITES)} brokers and nodes start, in a {graph}")
    async with standing(folder, installation, graph, seed, per_second) as world:
        zero = loop.time() + QUIET_BEFORE_S
        outcome = Outcome(
            Timeline(lambda: loop.time() - zero), schedule, graph, installation.version
        )
        async with _beside(world, outcome, seen):
            await _strike_all(world, outcome, say)
            await _drain(world, outcome, say)
        await _take_stock(world, outcome, say)
    return outcome


@contextlib.asynccontextmanager
async def _beside(world: World, outcome: Outcome, seen: Callable[[Sample], None]) -> Any:
    """Samples are taken, and nodes that end are begun again, while the block lasts."""

    async def watch() -> None:
        while True:
            world.start_what_ended()
            await asyncio.sleep(LOOK_EVERY_S)

    tasks = [
        asyncio.create_task(watch()),
        asyncio.create_task(
            sampled(outcome.timeline, world.mesh.status, lambda: world.load.published, seen)
        ),
    ]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _strike_all(world: World, outcome: Outcome, say: Say) -> None:
    places = _Places(outcome.schedule)
    await asyncio.gather(*(_strike(world, outcome, places, one, say) for one in outcome.schedule))


async def _strike(world: World, outcome: Outcome, places: _Places, fault: Fault, say: Say) -> None:
    timeline = outcome.timeline
    strike = timeline.strike(fault)
    await asyncio.sleep(max(0.0, fault.at_s - timeline.clock()))
    async with places.held(fault):
        try:
            async with STRIKES[fault.kind](world, fault):
                strike.began_s = timeline.now()
                say(f"{strike.began_s:6.1f} s  {fault.kind} {fault.where} {fault.detail}".rstrip())
                await asyncio.sleep(fault.lasts_s)
        except Exception as error:
            # Told with all else that does not hold: other faults still are to be healed.
            strike.trouble = f"{type(error).__name__}: {error}"
            outcome.broken.append(f"fault #{fault.number} ({fault}): {strike.trouble}")
        strike.healed_s = timeline.now()
        if fault.lasts_s:
            say(f"{strike.healed_s:6.1f} s  over: {fault.kind} {fault.where}")


class _Places:
    """Sites and links, each of which one fault strikes at a time: healing may take longer than
    the schedule could know."""

    def __init__(self, schedule: Sequence[Fault]) -> None:
        self._locks = {fault.where: asyncio.Lock() for fault in schedule}
        self._free_at = dict.fromkeys(self._locks, 0.0)

    @contextlib.asynccontextmanager
    async def held(self, fault: Fault) -> Any:
        loop = asyncio.get_running_loop()
        kind = KINDS[fault.kind]
        all_of_it = kind.on == "mesh"
        wanted = sorted(self._locks) if all_of_it else [fault.where]
        async with contextlib.AsyncExitStack() as held:
            for place in wanted:
                await held.enter_async_context(self._locks[place])
            rests = max(self._free_at[place] for place in wanted) - loop.time()
            await asyncio.sleep(max(0.0, rests))
            yield
            for place in wanted:
                self._free_at[place] = loop.time() + kind.rest_s


async def _heal_all(world: World) -> None:
    """Whatever could not be healed as it should have been."""
    for line in world.mesh.lines.values():
        line.heal()
        line.set(LAN)
    for site, vhost in world.mesh.vhosts.items():
        if vhost.broker.is_running:
            vhost.broker.resume()
        await vhost.broker.start(deadline_s=START_WITHIN_S)
        if site not in world.mesh.processes:
            world.mesh.start([site])
        world.mesh.kill(site, signal.SIGCONT)


async def _drain(world: World, outcome: Outcome, say: Say) -> None:
    loop = asyncio.get_running_loop()
    drain = outcome.drain
    await _heal_all(world)
    drain.live_per_s = world.load.published / max(outcome.timeline.now() + QUIET_BEFORE_S, 1.0)
    began = loop.time()
    await world.load.end()
    published = world.load.published
    drain.backlog = max(0, *[published - await world.witnessed(site) for site in SITES])
    say(f"healed; {drain.backlog} messages behind; has to drain within {drain.deadline_s:.0f} s")
    since: float | None = None
    waiting: list[str] = []

    async def is_drained() -> bool:
        nonlocal since, waiting
        waiting = not_drained(await world.mesh.status())
        if waiting:
            since = None
            return False
        since = since or loop.time()
        return loop.time() - since >= STANDS_FOR_S

    try:
        within_s = drain.deadline_s + STANDS_FOR_S
        await until(is_drained, lambda: "; ".join(waiting), within_s, every_s=LOOK_EVERY_S)
    except TimeoutError as error:
        outcome.broken.append(f"I7: not drained {error}")
    else:
        assert since is not None
        drain.took_s = round(since - began, 1)
        say(f"drained after {drain.took_s} s")


def not_drained(told: Mapping[str, Any]) -> list[str]:
    """What a status says that is still to be done."""
    return [
        f"{site}: {key} {figures.get(key)}"
        for site, figures in told["sites"].items()
        for key, wanted in (
            *(("state", "running"), ("egress_messages", 0)),
            *(("undelivered_messages", 0), ("standing_flows", {})),
        )
        if figures.get(key) != wanted
    ] + [
        f"{link['from']}-{link['to']}: {key} {link.get(key)}"
        for link in told["links"]
        for key, wanted in (("state", "running"), ("lag_messages", 0))
        if link.get(key) != wanted
    ]


async def _take_stock(world: World, outcome: Outcome, say: Say) -> None:
    """Read both queues of each site, end the nodes, read their ledgers, and see what adds up."""
    witnesses = {site: world.load.sinks[site, "orders"] for site in SITES}
    for what, sinks in (("witness", witnesses), ("struck queue", world.victims)):
        for site, sink in sinks.items():
            try:
                await _emptied(world, site, sink)
            except TimeoutError as error:
                outcome.broken.append(f"{what} of {site}: {error}")
    told = await world.mesh.status()
    for site, figures in told["sites"].items():
        for key in ("quarantined", "dead_lettered"):
            if figures.get(key):
                outcome.broken.append(f"{site}: {key} {figures[key]}")
    outcome.broken.extend(world.ended)
    streams = [
        Published(s.origin, s.confirmed, s.indeterminate, s.refused)
        for s in (stream.source for stream in world.load.streams)
    ]
    cluster = world.mesh.cluster
    books = [
        SiteBooks(
            cluster(site), witnesses[site].arrived, world.victims[site].arrived, world.struck[site]
        )
        for site in SITES
    ]
    found = account(books, streams, outcome.schedule)
    found.broken[:0] = outcome.broken
    outcome.account = found
    for one in books:
        outcome.brought[one.site] = len({(m.origin, m.number) for m in one.witness})
    for stream in streams:
        counts = outcome.published.setdefault(stream.origin.split("/")[0], {})
        for name, count in (
            ("confirmed", len(stream.confirmed)),
            ("refused", len(stream.refused)),
            ("indeterminate", len(stream.unsure) - len(stream.refused)),
        ):
            counts[name] = counts.get(name, 0) + count
    say("nodes end; their ledgers are read")
    for site in SITES:
        code = await asyncio.to_thread(world.mesh.stop, site, within_s=STOPS_WITHIN_S)
        if code:
            found.broken.append(f"the node of {site} ended with {code}")
    for site in SITES:
        found.look(lambda site=site: check_rows(world.mesh, world.load, site))  # type: ignore[misc]


async def _emptied(world: World, site: str, sink: TrafficSink) -> None:
    """Take all that a queue has."""
    connection = await connect(world.mesh.uri(site), name="chaos")
    try:
        channel = await connection.channel()
        count = (await channel.declare_queue(sink.queue, passive=True)).message_count
        sink.resume()
        await until(
            lambda: len(sink.arrived) >= count,
            lambda: f"{len(sink.arrived)} of {count} read",
            60 + count / 500,
        )
        left = (await channel.declare_queue(sink.queue, passive=True)).message_count
        if left or len(sink.arrived) != count:
            raise TimeoutError(f"{len(sink.arrived)} of {count} came, and {left} more after that")
    finally:
        await connection.close()
