"""What a run has left: both queues of each site are read, the nodes ended, their ledgers read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from relay.bulk_amqp import connect
from tests.chaos.account import Published, SiteBooks, account
from tests.chaos.outcome import Outcome
from tests.chaos.world import EXCHANGE, SITES, World
from tests.journeys.books import check_rows
from tests.journeys.traffic import TrafficSink
from tests.waiting import until

STOPS_WITHIN_S = 60.0


async def take_stock(world: World, outcome: Outcome, say: Callable[[str], None]) -> None:
    """See what adds up, and note what does not."""
    witnesses = {site: world.load.sinks[site, EXCHANGE] for site in SITES}
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
    for node in (node for site in SITES for node in world.nodes(site)):
        code = await asyncio.to_thread(world.mesh.stop, node, within_s=STOPS_WITHIN_S)
        if code:
            found.broken.append(f"the node of {node} ended with {code}")
    for site in SITES:
        found.look(partial(check_rows, world.mesh, world.load, site))


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
