"""An exchange of four partitions: every key in order and in one partition, under load and kills."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from typing import Any

from federation.names import Names
from federation.partitions import partition_of
from relay.batches.format import decode_entries, read_header
from relay.log.rabbit.rabbit_log import open_rabbit_log
from simulation.invariants import Arrived, check_site
from tests.journeys.application import at, letter
from tests.journeys.conftest import MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.traffic import TrafficSource

SITES = ("paris", "tokyo", "lima")
PARTITIONS = 4
KEYS = 40
PARTITIONED: dict[str, Any] = {
    "topology": {"ring": {"both": True}},
    "exchanges": [{"name": "orders", "partitions": PARTITIONS}],
    "sites": {"paris": {"slots": 4}, "tokyo": {"slots": 2}, "lima": {}},
}


def key_of(number: int, keys: int = KEYS) -> bytes:
    return b"order.%d" % (number % keys)


async def test_each_key_is_in_one_partition_and_in_order_although_nodes_are_killed(
    live_mesh: MeshFactory,
) -> None:
    mesh = await live_mesh(*SITES, **PARTITIONED)
    await mesh.listen()
    mesh.start_each()
    await mesh.running()
    for site in SITES:
        mesh.sources[site] = TrafficSource(mesh.uri(site), mesh.cluster(site), "orders", key_of)
    chance = random.Random(3)
    async with mesh.publishing(400):
        for victim in ("paris", "tokyo"):
            await mesh.more_published(chance.randrange(200, 500))
            mesh.kill(victim)
            await mesh.more_published(chance.randrange(100, 300))
            mesh.start([victim])
            await mesh.running()
    await mesh.arrived()
    check_by_key(mesh, KEYS)
    told = await mesh.status()
    assert all(slot["packed"] for slot in told["sites"]["paris"]["slots"])
    in_log = await partitions_of_keys(mesh, "lima")
    assert len(in_log) == KEYS
    assert {len(partitions) for partitions in in_log.values()} == {1}
    assert {number for partitions in in_log.values() for number in partitions} == {0, 1, 2, 3}


async def test_identities_that_two_sites_publish_arrive_once(live_mesh: MeshFactory) -> None:
    mesh = await live_mesh(*SITES, **PARTITIONED)
    mesh.start_each()
    await mesh.running()
    async with at(mesh, *SITES) as (paris, tokyo, lima):
        arrived = await paris.listen("orders")
        for number in range(KEYS):
            both = letter(
                b"both %d" % number,
                f"00000000-0000-4000-8000-{number:012}",
                key=key_of(number),
            )
            await asyncio.gather(tokyo.post("orders", both), lima.post("orders", both))
        for number in range(KEYS):
            for site, origin in ((tokyo, 1), (lima, 2)):
                last = f"00000000-0000-4000-9000-{number:010}{origin:02}"
                await site.post("orders", letter(b"last", last, key=key_of(number)))
        bodies = [one.body for one in await arrived.has(3 * KEYS)]
    both = [b"both %d" % number for number in range(KEYS)]
    assert sorted(bodies) == sorted([*both, *[b"last"] * 2 * KEYS])


def check_by_key(mesh: LiveMesh, keys: int) -> None:
    """Raise InvariantBroken unless every site got each message once, those of a key in order."""

    def stream(origin: str, number: int) -> str:
        return f"{origin}/{number % keys}"

    for sink in mesh.sinks.values():
        got = {(message.origin, message.number) for message in sink.from_others()}
        published: dict[str, dict[int, bytes]] = defaultdict(dict)
        for source in mesh.sources.values():
            if source.origin == sink.site:
                continue
            for number, body in source.confirmed.items():
                published[stream(source.origin, number)][number] = body
            for number, body in source.indeterminate.items():
                if (source.origin, number) in got:
                    published[stream(source.origin, number)][number] = body
        arrived: list[Arrived] = [
            message._replace(origin=stream(message.origin, message.number))
            for message in sink.from_others()
        ]
        check_site(sink.site, arrived, published)


async def partitions_of_keys(mesh: LiveMesh, site: str) -> dict[bytes, set[int]]:
    """Return the partitions that the batches of each key are in, as a site's log has them."""
    names = Names(mesh.mesh.name)
    log = await open_rabbit_log(
        mesh.book.stream(site), names.log, mark_name=names.deliverer_mark, name="a test"
    )
    found: dict[bytes, set[int]] = defaultdict(set)
    last = await log.end()
    cursor = await log.read(0)
    try:
        at_offset = -1
        while last is not None and at_offset < last:
            for record in await cursor.next():
                at_offset = record.offset
                if at_offset > last:
                    break
                if record.data:
                    lane = read_header(record.data).name.series.lane
                    for entry in decode_entries(record.data):
                        found[bytes(entry.routing_key)].add(partition_of(lane))
    finally:
        await cursor.close()
        await log.close()
    return found
