"""Times of a takeover at a site of two nodes.

    python -m benchmarks.takeover [--rabbitmq DIR] [--rounds 5] [--rate 1000] [--members 3]

A site publishes to another one with two nodes, on real brokers, three ZooKeepers and `members`
nodes of Cassandra. In turn the running node is killed, ended in order, told to give the site to the
other node (`isthmus slots --move`), and frozen for 20 s. What is
printed is the time (s) from there to the end of the longest pause between two deliveries, and how
many messages came flagged; then medians, least and most.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import Any

import uvloop

from benchmarks.compare.brokers import Brokers
from benchmarks.compare.isthmus_way import IsthmusMesh
from benchmarks.compare.layout import one_hop
from benchmarks.compare.until import until
from benchmarks.compare.way import Lines
from isthmus.brokers.installation import find_installation
from isthmus.cluster_parts.cassandra_nodes import CassandraNodes
from isthmus.cluster_parts.zookeeper_nodes import ZookeeperNodes
from isthmus.node_client import NodeClient
from relay.bulk_amqp import Connection, Consumer, Delivery, Publisher, connect
from relay.bulk_amqp.content_header import NONE_PRESENT

SITE = "site1"
NODES = ("a", "b")
MOVED = "moved"
WAYS = {
    "killed": signal.SIGKILL,
    "ended": signal.SIGTERM,
    MOVED: None,
    "frozen": signal.SIGSTOP,
}
FROZEN_S = 20.0
STEADY_S = 5.0
_GROUP = 10
_FLAG = b"x-mesh-redelivered"
_TIME = Struct("<d")


class Arrivals:
    """Times of arrival at the site, delays since the publishing, and how many messages came
    flagged.
    """

    def __init__(self) -> None:
        self.times: list[float] = []
        self.delays: list[float] = []
        self.flagged = 0

    def take(self, deliveries: Sequence[Delivery]) -> None:
        now = asyncio.get_running_loop().time()
        self.times += [now] * len(deliveries)
        self.delays += [now - _TIME.unpack_from(delivery[5])[0] for delivery in deliveries]
        self.flagged += sum(_FLAG in delivery[4] for delivery in deliveries)

    def pause_after(self, began: float) -> float:
        """Return the time from `began` to the end of the longest pause since."""
        times = [began, *(time for time in self.times if time > began)]
        _, end = max(pairwise(times), key=lambda pair: pair[1] - pair[0])
        return end - began


class Takeovers:
    """A mesh of two sites, one of which has two nodes, under load."""

    def __init__(self, mesh: IsthmusMesh, arrivals: Arrivals) -> None:
        self._mesh = mesh
        self._arrivals = arrivals

    async def measure(self, way: str) -> tuple[float, int]:
        """End the running node in one way; return the time of the pause, and messages flagged."""
        await self._mesh.ready()
        await until(self._both_stand, "one node runs and one stands by")
        await self._steady()
        runs, other = await self._states()
        process = self._mesh.nodes[f"{SITE}/{runs}"]
        arrivals = self._arrivals
        flagged, began = arrivals.flagged, asyncio.get_running_loop().time()
        number = WAYS[way]
        if number is None:
            await NodeClient.of(self._mesh.state, SITE).order(0, "slots/0/give", {"to": other})
        else:
            process.send_signal(number)
        await until(self._other_runs(runs), "the other node runs")
        await self._steady()
        pause_s = arrivals.pause_after(began)
        if way == "frozen":
            await asyncio.sleep(FROZEN_S - pause_s)
            process.send_signal(signal.SIGCONT)
        elif number is not None:
            await process.wait()
            await self._mesh.start_node(SITE, runs)
        await self._steady()
        return pause_s, arrivals.flagged - flagged

    def _other_runs(self, former: str) -> Callable[[], Awaitable[bool]]:
        async def runs() -> bool:
            running, _ = await self._states()
            return bool(running) and running != former

        return runs

    async def _both_stand(self) -> bool:
        runs, standby = await self._states()
        return bool(runs and standby)

    async def _states(self) -> tuple[str, str]:
        """Return the running node and the one that stands by; empty where none does."""
        found = (await self._mesh.status())["sites"][SITE].get("nodes", {})
        by_state = {node["state"]: name for name, node in found.items()}
        return by_state.get("running", ""), by_state.get("standby", "")

    async def _steady(self) -> None:
        await asyncio.sleep(STEADY_S)


@asynccontextmanager
async def site_servers(folder: Path, members: int) -> AsyncIterator[dict[str, Any]]:
    """Run three ZooKeepers and so many nodes of Cassandra; yield the `cluster` of a site."""
    async with (
        ZookeeperNodes(folder / "zookeeper", 3) as zookeeper,
        CassandraNodes(folder / "cassandra", members) as cassandra,
    ):
        hosts = [f"{address}:{cassandra.port}" for address in cassandra.addresses]
        yield {
            "zookeeper": zookeeper.hosts,
            "cassandra": {"hosts": hosts, "replication": members},
        }


@asynccontextmanager
async def load(
    brokers: Brokers, rate: int, arrivals: Arrivals, keys: int = 1
) -> AsyncIterator[None]:
    """Publish `rate` messages a second, of so many routing keys, at the other site, and consume
    them at SITE.
    """
    async with AsyncExitStack() as connections:

        async def connected(site: str) -> Connection:
            connection = await connect(brokers.uri(site))
            connections.push_async_callback(connection.close)
            return connection

        channel = await (await connected(SITE)).channel()
        await channel.declare_queue("takeover", durable=True, arguments={"x-queue-type": "quorum"})
        await channel.bind_queue("takeover", "orders", "#")

        def take(deliveries: Sequence[Delivery]) -> None:
            arrivals.take(deliveries)
            consumer.ack(deliveries[-1][0])

        consumer = Consumer(channel, "takeover", take)
        await consumer.start(prefetch=2000)
        publisher = Publisher(await (await connected("site0")).channel())
        await publisher.start()
        publishing = asyncio.create_task(_publish(publisher, rate, keys))
        try:
            yield
        finally:
            publishing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await publishing


async def _publish(publisher: Publisher, rate: int, keys: int) -> None:
    loop = asyncio.get_running_loop()
    due = loop.time()
    numbers = itertools.cycle(range(keys))
    while True:
        body = _TIME.pack(loop.time()) + os.urandom(120)
        publisher.publish_many(
            [("orders", b"k%d" % next(numbers), NONE_PRESENT, body) for _ in range(_GROUP)]
        )
        await publisher.drain()
        due += _GROUP / rate
        await asyncio.sleep(max(0.0, due - loop.time()))


async def _main(arguments: argparse.Namespace) -> None:
    installation = find_installation(arguments.rabbitmq)
    layout, arrivals = one_hop(), Arrivals()
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with (
            site_servers(folder, arguments.members) as cluster,
            Brokers(installation, folder, layout.sites) as brokers,
        ):
            sites = {"site0": {}, SITE: {"nodes": list(NODES), "cluster": cluster}}
            mesh = IsthmusMesh(folder, [{"name": "orders"}], sites=sites)
            try:
                await mesh.set_up(brokers, layout, Lines(brokers, None, None))
                await mesh.ready()
                async with load(brokers, arguments.rate, arrivals):
                    takeovers = Takeovers(mesh, arrivals)
                    for number in range(arguments.rounds):
                        for way in WAYS:
                            pause_s, flagged = await takeovers.measure(way)
                            times[way].append(pause_s)
                            print(f"round {number + 1}, {way}: {pause_s:.2f} s, {flagged} flagged")
                            sys.stdout.flush()
            finally:
                await mesh.close()
    for way, found in times.items():
        print(
            f"{way}: {statistics.median(found):.2f} s ({min(found):.2f} to {max(found):.2f}),"
            f" {len(found)} rounds"
        )


def run(
    main: Callable[[argparse.Namespace], Coroutine[Any, Any, None]], about: str, rounds: int
) -> None:
    """Run `main` with the options of the command line; `rounds` is the default of theirs."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--rabbitmq", type=Path, help="another RabbitMQ")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--rate", type=int, default=1000, help="messages a second")
    parser.add_argument("--members", type=int, default=3, help="nodes of Cassandra")
    uvloop.run(main(parser.parse_args()))


if __name__ == "__main__":
    run(_main, __doc__.splitlines()[0], 5)
