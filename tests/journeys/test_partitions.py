"""An exchange of four partitions: every key in order and in one partition, under load and kills."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from federation.names import Names
from federation.partitions import partition_of
from isthmus.brokers.installation import RabbitMQInstallation, find_installation
from relay.batches.format import decode_entries, read_header
from relay.log.rabbit.rabbit_log import open_rabbit_log
from simulation.invariants import Arrived, check_site
from tests.journeys.application import at, letter
from tests.journeys.conftest import MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.traffic import TrafficSource
from tests.live_brokers import START_WITHIN_S
from tests.waiting import until

SITES = ("paris", "tokyo", "lima")
PARTITIONS = 4
KEYS = 40
MANY, MANY_KEYS = 100_000, 1_000
NEWER = Path(".rabbitmq/4.3")
"""RabbitMQ beside the one that all tests run; `make test-long` makes the chroot."""
PARTITIONED: dict[str, Any] = {
    "topology": {"ring": {"both": True}},
    "exchanges": [{"name": "orders", "partitions": PARTITIONS}],
    "sites": {"paris": {"slots": 4}, "tokyo": {"slots": 2}, "lima": {}},
}


def key_of(number: int, keys: int = KEYS) -> bytes:
    return b"order.%d" % (number % keys)


@pytest.mark.slow
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


@pytest.mark.long
async def test_keys_keep_their_partitions_over_brokers_of_two_releases_and_their_restarts(
    live_mesh: MeshFactory, rabbitmq: RabbitMQInstallation
) -> None:
    other = find_installation(None if rabbitmq.chroot else NEWER)
    assert other.release != rabbitmq.release
    own = ("paris", "tokyo")
    mesh = await live_mesh(*SITES, own=own, releases={"tokyo": other}, **PARTITIONED)
    await mesh.listen(at_once=False)
    mesh.start_each()
    await mesh.running()
    for site in own:
        key = partial(key_of, keys=MANY_KEYS)
        mesh.sources[site] = TrafficSource(mesh.broker(site), mesh.cluster(site), "orders", key)
    publishing = asyncio.gather(
        *(
            mesh.sources[site].publish(MANY // 2, per_second=700, again_after_failure=True)
            for site in own
        )
    )

    def published(share: float) -> bool:
        return min(len(mesh.sources[site].confirmed) for site in own) >= share * MANY / 2

    for number, victim in enumerate((*own, *own)):
        await until(partial(published, 0.2 * number + 0.1), mesh.logs, 300)
        if number < len(own):
            mesh.kill(victim)
            mesh.start([victim])
        else:
            await mesh.vhosts[victim].broker.stop()
            await mesh.vhosts[victim].broker.start(deadline_s=START_WITHIN_S)
        await mesh.running()
    await publishing
    for sink in mesh.sinks.values():
        sink.resume()
    await mesh.arrived(within_s=300)
    check_by_key(mesh, MANY_KEYS)
    for site, slots in (("lima", 1), ("tokyo", 2)):
        in_logs = await partitions_of_keys(mesh, site, slots)
        assert len(in_logs) == MANY_KEYS
        assert {len(partitions) for partitions in in_logs.values()} == {1}


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


@pytest.mark.slow
async def test_a_node_of_several_slots_takes_up_other_partitions_neither_running_nor_as_it_starts(
    live_mesh: MeshFactory,
) -> None:
    sites: dict[str, Any] = {"paris": {"slots": 2}, "tokyo": {}}
    mesh = await live_mesh(*sites, topology="complete", sites=sites)
    mesh.start_each()
    await mesh.running()
    mesh.document["exchanges"] = [{"name": "orders", "partitions": 2}]
    mesh.write()
    await mesh.until_told(
        lambda told: "into 2 partitions" in told["sites"]["paris"]["file_problem"],
        "the running node refuses other partitions",
    )
    assert mesh.stop("paris") == 0
    mesh.start(["paris"])
    assert await mesh.dies("paris") == 3
    assert "an exchange of another name" in mesh.logs()


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


async def partitions_of_keys(mesh: LiveMesh, site: str, slots: int = 1) -> dict[bytes, set[int]]:
    """Return the partitions that the batches of each key are in, as a site's logs have them."""
    found: dict[bytes, set[int]] = defaultdict(set)
    for slot in range(slots):
        for key, partition in await partitions_in_log(mesh, site, slot):
            found[key].add(partition)
    return found


async def partitions_in_log(mesh: LiveMesh, site: str, slot: int) -> set[tuple[bytes, int]]:
    """Return the key and the partition of each message in the log of a slot."""
    names = Names(mesh.mesh.name, slot)
    log = await open_rabbit_log(
        mesh.book.stream(site), names.log, mark_name=names.deliverer_mark, name="a test"
    )
    found: set[tuple[bytes, int]] = set()
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
                        found.add((bytes(entry.routing_key), partition_of(lane)))
    finally:
        await cursor.close()
        await log.close()
    return found
