"""What relaying costs beside what the brokers pay for it: CPU of nodes and of brokers a delivery.

    .venv/bin/python -m benchmarks.relay_share [--sites 3] [--messages 30000] [--size 1024]
                                               [--rounds 3] [--mode transparent|split]
                                               [--rabbitmq DIR]

`isthmus up` runs a complete graph of private brokers on loopback. A round publishes that many
persistent messages at each site, with confirms, and waits until a durable queue at every site has
given all that is due there to its consumer: of every site if the exchange is transparent, of the
others if it is split. Printed: microseconds of user and system time a delivery at
another site, of all nodes and of all brokers (publishing at home and consuming included), their
ratio, the median of the rounds, and each node's highest resident memory. Barrier, ledger, hashes
and intents are as everybody has them. The ratio is what may be compared, and within one run only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.compare.brokers import QUEUE
from benchmarks.compare.until import until
from benchmarks.compare.usage import cpu_s, memory_mb
from isthmus.load import RUN_BYTES, LoadSink, LoadSource, Noise


@dataclass(frozen=True, slots=True)
class Application:
    """A site's own: publishes with confirms, consumes with acks."""

    uri: str
    origin: int
    sink: LoadSink

    async def publish(self, run: bytes, count: int, size: int) -> None:
        source = LoadSource(self.uri, run, self.origin, "orders", Noise(size))
        await source.open()
        await source.publish(count)
        await source.close()


class Mesh:
    """Of private brokers, under `isthmus up`."""

    def __init__(self, folder: Path, sites: list[str], mode: str, rabbitmq: str | None) -> None:
        self.local_exchange = "orders.in" if mode == "split" else "orders"
        self._file, self._state = folder / "mesh.yaml", folder / "state"
        self._rabbitmq = ["--rabbitmq", rabbitmq] if rabbitmq else []
        self.document: dict[str, Any] = {
            "mesh": "bench",
            "outage_window": "72h",
            "topology": "complete",
            "exchanges": [{"name": "orders", "mode": mode}],
            "sites": {site: {} for site in sites},
        }
        self.write()

    def write(self) -> None:
        """The file says `document`; nodes that run take it up."""
        self._file.write_text(json.dumps(self.document))

    def run(self, command: str, *options: str) -> str:
        where = [str(self._file), "--state", str(self._state)]
        told = subprocess.run(
            [sys.executable, "-m", "isthmus", command, *where, *options],
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        return told.stdout

    def up(self) -> None:
        self.run("up", "--detach", *self._rabbitmq)

    def down(self) -> None:
        self.run("down")

    def uri(self, site: str) -> str:
        return self.run("uri", site).strip()

    def told(self) -> dict[str, Any]:
        """What `status --json` says."""
        found: dict[str, Any] = json.loads(self.run("status", "--json"))
        return found

    def each(self, field: str) -> list[int]:
        """That field of `status --json`, of every site."""
        return [site[field] for site in self.told()["sites"].values()]


async def listening(mesh: Mesh, sites: list[str]) -> list[Application]:
    """An application at each site, with a queue of all that is due there."""
    applications = []
    for number, site in enumerate(sites):
        application = Application(uri := mesh.uri(site), number, LoadSink(uri, b"", QUEUE))
        channel = await (await application.sink.open()).channel()
        await channel.declare_queue(QUEUE, durable=True)
        await channel.bind_queue(QUEUE, mesh.local_exchange, "#")
        await application.sink.consume()
        applications.append(application)
    return applications


async def one_round(
    applications: list[Application],
    nodes: list[int],
    brokers: list[int],
    count: int,
    size: int,
    origins: int,
) -> tuple[float, float, float]:
    """(microseconds of nodes a delivery, of brokers, deliveries a second).

    `origins` says of how many sites each application's queue gets the messages.
    """
    sites, run = len(applications), os.urandom(RUN_BYTES)
    for one in applications:
        one.sink.begin(run)
    before = [sum(map(cpu_s, pids)) for pids in (nodes, brokers)]
    began = time.monotonic()
    await asyncio.gather(*(one.publish(run, count, size) for one in applications))

    async def came() -> bool:
        return all(one.sink.delivered == count * origins for one in applications)

    await until(came, "all deliveries", within_s=600)
    took = max(one.sink.last_at_ns for one in applications) / 1e9 - began
    deliveries = count * sites * (sites - 1)
    node_s, broker_s = (
        sum(map(cpu_s, pids)) - was for pids, was in zip((nodes, brokers), before, strict=True)
    )
    return node_s / deliveries * 1e6, broker_s / deliveries * 1e6, deliveries / took


async def measure(mesh: Mesh, sites: list[str], rounds: int, count: int, size: int) -> None:
    applications = await listening(mesh, sites)
    nodes, brokers = mesh.each("node_pid"), mesh.each("broker_pid")
    origins = len(sites) - (mesh.local_exchange != "orders")
    await one_round(applications, nodes, brokers, count // 10, size, origins)  # warm
    results = []
    for number in range(rounds):
        node_us, broker_us, rate = await one_round(
            applications, nodes, brokers, count, size, origins
        )
        results.append((node_us, broker_us))
        print(
            f"round {number + 1}: nodes {node_us:.1f} us, brokers {broker_us:.1f} us, "
            f"share {node_us / broker_us:.1%}, {rate:,.0f} deliveries/s",
            flush=True,
        )
    print(f"median share: {statistics.median(n / b for n, b in results):.1%}")
    print(f"messages a batch: {sum(mesh.each('packed')) / sum(mesh.each('batches')):.0f}")
    print("peak of nodes: " + ", ".join(f"{memory_mb(pid, 'VmHWM'):.0f} MB" for pid in nodes))
    for application in applications:
        await application.sink.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--messages", type=int, default=30_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mode", choices=["transparent", "split"], default="transparent")
    parser.add_argument("--rabbitmq")
    options = parser.parse_args()
    sites = [f"site{number}" for number in range(options.sites)]
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as folder:
        mesh = Mesh(Path(folder), sites, options.mode, options.rabbitmq)
        mesh.up()
        try:
            uvloop.run(measure(mesh, sites, options.rounds, options.messages, options.size))
        finally:
            mesh.down()


if __name__ == "__main__":
    main()
