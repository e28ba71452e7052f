"""Rate of a best-effort flow beside a full queue and without one, and of a strict flow beside one.

    .venv/bin/python -m benchmarks.best_effort [--messages 60000] [--size 1024] [--rounds 5]
                                               [--rabbitmq DIR]

`isthmus up` runs two private brokers on loopback. At the second site two queues are bound to the
exchange, one of which takes only a few messages. A round without refusals publishes to the other
queue alone, a round beside the full one also 1 % as many messages to the full queue, which are
refused and tried again throughout the round. Printed: deliveries a second of rounds taken by turns,
and the median of the ratios of neighbours, which alone may be compared; and how many messages of a
strict flow come behind a refused one within some seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import uvloop
from pamqp.common import FieldValue

from benchmarks.compare.brokers import QUEUE
from benchmarks.compare.until import until
from benchmarks.signing import LocalMesh
from federation.mesh import ExchangeMode, OrderRule
from isthmus.load.messages import RUN_BYTES, Noise
from isthmus.load.sink import LoadSink
from isthmus.load.source import LoadSource
from relay.bulk_amqp import Channel, Publisher, connect
from relay.bulk_amqp.content_header import DELIVERY_MODE, NONE_PRESENT, rewrite

SITES = ["site0", "site1"]
FULL = "full"
ROOM = 1
REFUSED_ONE_IN = 100
BURSTS = 20
"""Bursts of a round in which its messages for the full queue are published."""
STRICT_S = 5.0
WITHOUT, BESIDE = WAYS = ("without", "beside")
EXCHANGES = {"orders": OrderRule.BEST_EFFORT.value, "letters": OrderRule.STRICT.value}
RETRY = {"max_attempts": 1000, "backoff": ["0.2s", "2s"]}


@dataclass(frozen=True, slots=True)
class Bench:
    """Both ends of the measured flow."""

    mesh: LocalMesh
    sink: LoadSink
    channel: Channel
    """Channel at the receiving site."""
    refused: Publisher
    """Publisher of messages for the full queue."""
    size: int

    async def round(self, count: int, way: str) -> float:
        """Return the deliveries a second of a round."""
        run = os.urandom(RUN_BYTES)
        self.sink.begin(run)
        source = LoadSource(self.mesh.uri(SITES[0]), run, 0, "orders", Noise(self.size))
        await source.open()
        began = time.monotonic()
        over = asyncio.Event()
        publishing = asyncio.create_task(self._publish_refused(count, over, way == BESIDE))
        await source.publish(count)
        await source.close()

        async def came() -> bool:
            return self.sink.delivered == count

        await until(came, "all deliveries", within_s=600)
        over.set()
        await publishing
        return count / (self.sink.last_at_ns / 1e9 - began)

    async def _publish_refused(self, count: int, over: asyncio.Event, is_wanted: bool) -> None:
        number = count // REFUSED_ONE_IN // BURSTS if is_wanted else 0
        for _ in range(BURSTS if number else 0):
            await self.refuse("orders", number)
            if over.is_set():
                return

    async def refuse(self, exchange: str, count: int) -> None:
        """Publish messages for the full queue."""
        properties = rewrite(NONE_PRESENT, {DELIVERY_MODE: 2})
        one = exchange, FULL.encode(), properties, bytes(self.size)
        await self.refused.wait(self.refused.publish_many([one] * count))

    async def fill(self) -> None:
        """Bind a full queue to both exchanges."""
        arguments: dict[str, FieldValue] = {"x-max-length": ROOM, "x-overflow": "reject-publish"}
        await self.channel.declare_queue(FULL, durable=True, arguments=arguments)
        for exchange in EXCHANGES:
            await self.channel.bind_queue(FULL, f"{exchange}.in", FULL)
        await self.refuse("orders", 2 * ROOM)
        await until(self._is_deferring, "a refused message waits")

    async def end_refusals(self) -> None:
        """Delete the full queue, and wait until nothing waits for it any more."""
        await self.channel.delete_queue(FULL)

        async def is_over() -> bool:
            return not await self._is_deferring()

        await until(is_over, "nothing waits aside")

    async def _is_deferring(self) -> bool:
        return bool(self.mesh.status()["sites"][SITES[1]]["deferred_waiting"])

    async def strict(self, count: int) -> int:
        """Return how many messages of a strict flow come behind a refused one."""
        await self.refuse("letters", 2 * ROOM)

        async def stands() -> bool:
            return bool(self.mesh.status()["sites"][SITES[1]]["standing_flows"])

        await until(stands, "the strict flow stands")
        run = os.urandom(RUN_BYTES)
        self.sink.begin(run)
        source = LoadSource(self.mesh.uri(SITES[0]), run, 0, "letters", Noise(self.size))
        await source.open()
        await source.publish(count)
        await source.close()
        await asyncio.sleep(STRICT_S)
        return self.sink.delivered


async def measure(mesh: LocalMesh, rounds: int, count: int, size: int) -> None:
    """Measure, and print what was found."""
    sink = LoadSink(mesh.uri(SITES[1]), b"", QUEUE)
    channel = await (await sink.open()).channel()
    await channel.declare_queue(QUEUE, durable=True)
    for exchange in EXCHANGES:
        await channel.bind_queue(QUEUE, f"{exchange}.in", "bench.load")
    await sink.consume()
    connection = await connect(mesh.uri(SITES[0]), name="refused")
    refused = Publisher(await connection.channel())
    await refused.start()
    bench = Bench(mesh, sink, channel, refused, size)
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(rounds + 1):
        for way in WAYS if number % 2 else reversed(WAYS):
            if way == BESIDE:
                await bench.fill()
            rate = await bench.round(count, way)
            if way == BESIDE:
                await bench.end_refusals()
            if number:  # the first of each warms up
                rates[way].append(rate)
                print(f"{way:8}{rate:10,.0f} deliveries/s", flush=True)
    ratios = [
        beside / without for beside, without in zip(rates[BESIDE], rates[WITHOUT], strict=True)
    ]
    medians = {way: statistics.median(found) for way, found in rates.items()}
    print(
        f"medians: {medians[BESIDE]:,.0f} of {medians[WITHOUT]:,.0f} deliveries/s; ratios of "
        f"neighbours {min(ratios):.2f} to {max(ratios):.2f}, median "
        f"{statistics.median(ratios):.3f}",
        flush=True,
    )
    await bench.fill()
    came = await bench.strict(count // 10)
    print(f"strict: {came} of {count // 10:,} messages within {STRICT_S:g} s")
    await connection.close()
    await sink.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=60_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rabbitmq")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as name:
        mesh = LocalMesh(Path(name), SITES, ExchangeMode.SPLIT.value, options.rabbitmq)
        mesh.document["exchanges"] = [
            {"name": name, "mode": ExchangeMode.SPLIT.value, "order": order, "retry": RETRY}
            for name, order in EXCHANGES.items()
        ]
        mesh.write()
        mesh.up()
        try:
            uvloop.run(measure(mesh, options.rounds, options.messages, options.size))
        finally:
            mesh.down()


if __name__ == "__main__":
    main()
