"""Cost and use of partitions: what a publisher pays, and how two nodes share one exchange.

    python -m benchmarks.partitions [--rabbitmq DIR] [--rounds 3] [--rate 2000] [--members 1]

First a publisher sends confirmed messages of a thousand keys to an exchange with one egress queue
and to one with four partitions, in turns, while no node runs: its rates, and their ratio.

Then a site publishes at `rate` to another one, whose one exchange is in turn one queue's, on a node
with its state on its own disk, and four partitions', in four slots that two nodes share, with
journals in `members` nodes of Cassandra. On few cores no node comes to its limit, so the figure is
the CPU (microseconds a message of the whole exchange) of the busiest node: the limit of a node of
one core is its inverse. Medians, least and most of all rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.compare.brokers import Brokers
from benchmarks.compare.isthmus_way import IsthmusMesh
from benchmarks.compare.layout import one_hop
from benchmarks.compare.until import until
from benchmarks.compare.usage import tree_cpu_s
from benchmarks.compare.way import Lines
from benchmarks.takeover import NODES, SITE, Arrivals, load, run, site_servers
from isthmus.brokers.installation import RabbitMQInstallation, find_installation
from relay.bulk_amqp import Publication, Publisher, connect
from relay.bulk_amqp.content_header import NONE_PRESENT

PARTITIONS = 4
KEYS = 1000
PUBLISHED = 20_000
WARM_S = 5.0
MEASURED_S = 15.0
_GROUP = 500
_GROUPS_AHEAD = 4
"""Groups of messages that wait for their confirms, as with publishers at their limit."""
PLAIN, CUT = "one queue", f"{PARTITIONS} partitions"
ONE, TWO = f"{PLAIN}, one node", f"{CUT}, two nodes"


async def _publisher_rates(
    folder: Path, installation: RabbitMQInstallation, rounds: int
) -> dict[str, list[float]]:
    """Return the rates (messages a second) at which a publisher is confirmed, by way."""
    layout = one_hop()
    exchanges: dict[str, dict[str, Any]] = {
        PLAIN: {"name": "plain"},
        CUT: {"name": "cut", "partitions": PARTITIONS},
    }
    rates: dict[str, list[float]] = {way: [] for way in exchanges}
    async with Brokers(installation, folder, layout.sites) as brokers:
        mesh = IsthmusMesh(folder, list(exchanges.values()), sites={"site0": {}, SITE: {}})
        try:
            await mesh.set_up(brokers, layout, Lines(brokers, None, None))
            connection = await connect(brokers.uri("site0"))
            publisher = Publisher(await connection.channel())
            await publisher.start()
            for number in range(2 * rounds + 1):
                for way, exchange in exchanges.items():
                    rate = await _published(publisher, exchange["name"])
                    if number:  # the first is for the broker to warm up
                        rates[way].append(rate)
            await connection.close()
        finally:
            await mesh.close()
    return rates


async def _published(publisher: Publisher, exchange: str) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    unconfirmed: deque[Publication] = deque()
    for first in range(0, PUBLISHED, _GROUP):
        if len(unconfirmed) == _GROUPS_AHEAD:
            await publisher.wait(unconfirmed.popleft())
        messages = [
            (exchange, b"key.%d" % (number % KEYS), NONE_PRESENT, bytes(128))
            for number in range(first, first + _GROUP)
        ]
        unconfirmed.append(publisher.publish_many(messages))
    for publication in unconfirmed:
        await publisher.wait(publication)
    return PUBLISHED / (loop.time() - began)


async def _busiest_us(
    folder: Path,
    installation: RabbitMQInstallation,
    exchange: Mapping[str, Any],
    keys: Mapping[str, Any],
    rate: int,
) -> float:
    """Run a mesh with these keys of the receiving site; return the CPU of its busiest node."""
    layout, arrivals = one_hop(), Arrivals()
    async with Brokers(installation, folder, layout.sites) as brokers:
        sites = {"site0": {}, SITE: dict(keys)}
        mesh = IsthmusMesh(folder, [dict(exchange)], sites=sites)
        try:
            await mesh.set_up(brokers, layout, Lines(brokers, None, None))
            await mesh.ready()
            names = [f"{SITE}/{node}" for node in NODES] if keys else [SITE]
            if keys:
                await until(lambda: _share_slots(mesh), "the nodes share the slots")
            async with load(brokers, rate, arrivals, KEYS):
                await asyncio.sleep(WARM_S)
                arrivals.delays.clear()
                pids = [mesh.nodes[name].pid for name in names]
                before = [tree_cpu_s([pid]) for pid in pids]
                await asyncio.sleep(MEASURED_S)
                spent = [tree_cpu_s([pid]) - was for pid, was in zip(pids, before, strict=True)]
                return max(spent) / len(arrivals.delays) * 1e6
        finally:
            await mesh.close()


async def _share_slots(mesh: IsthmusMesh) -> bool:
    """Return True once each node runs half of the slots."""
    nodes = (await mesh.status())["sites"][SITE].get("nodes", {})
    return [len(node["slots"]) for node in nodes.values()] == [PARTITIONS // 2] * len(NODES)


async def _main(arguments: argparse.Namespace) -> None:
    installation = find_installation(arguments.rabbitmq)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "publisher").mkdir()
        rates = await _publisher_rates(folder / "publisher", installation, arguments.rounds)
        _print("publisher, messages/s", rates)
        ratio = statistics.median(rates[CUT]) / statistics.median(rates[PLAIN])
        print(f"publisher's rate into {CUT}: {ratio:.2f} of that into {PLAIN}", flush=True)
        busiest: dict[str, list[float]] = {ONE: [], TWO: []}
        async with site_servers(folder / "servers", arguments.members) as cluster:
            for number in range(arguments.rounds):
                cassandra = {**cluster["cassandra"], "keyspace": f"round{number}"}
                shared = {
                    "slots": PARTITIONS,
                    "nodes": list(NODES),
                    "cluster": {**cluster, "cassandra": cassandra},
                }
                cut = {"name": "orders", "partitions": PARTITIONS}
                for way, exchange, keys in ((ONE, {"name": "orders"}, {}), (TWO, cut, shared)):
                    place = folder / f"{number} {way}"
                    place.mkdir()
                    used = await _busiest_us(place, installation, exchange, keys, arguments.rate)
                    busiest[way].append(used)
                    print(f"round {number + 1}, {way}: busiest node {used:.1f} us", flush=True)
        _print("busiest node, CPU us a message", busiest)
        ratio = statistics.median(busiest[ONE]) / statistics.median(busiest[TWO])
        print(f"limit of {TWO}: {ratio:.2f} of that of {ONE}")
        sys.stdout.flush()


def _print(what: str, figures: Mapping[str, list[float]]) -> None:
    for way, found in figures.items():
        middle = statistics.median(found)
        print(f"{what}, {way}: {middle:,.1f} ({min(found):,.1f} to {max(found):,.1f})")


if __name__ == "__main__":
    run(_main, __doc__.splitlines()[0], 3)
