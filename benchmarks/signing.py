"""Cost of signing: microseconds a batch, and the rest of a mesh's throughput.

    .venv/bin/python -m benchmarks.signing [--sites 2] [--messages 30000] [--size 1024] [--rounds 5]
                                           [--rabbitmq DIR]

First sealing, signing and checking of one batch, alone. Then `isthmus up` runs private brokers on
loopback, a complete graph; its mesh file says `signing: ed25519` and `none` in turn, which the
nodes take up as they run, and a round of messages goes from every site to every other each time,
with confirms. Printed: deliveries a second and the nodes' CPU a
delivery, medians of the rounds of each kind, and their ratios, which alone may be compared.
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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.compare.brokers import QUEUE
from benchmarks.compare.until import until
from benchmarks.compare.usage import cpu_s
from federation.mesh import Exchange, ExchangeMode, ForwardingRule, Mesh, SigningRule, Site
from federation.signing_keys import private_key_pem, public_key_text
from isthmus.load.messages import RUN_BYTES, Noise
from isthmus.load.sink import LoadSink
from isthmus.load.source import LoadSource
from relay.batches.batch import BatchHeader, BatchKind, BatchName, Entry, Series
from relay.batches.format import read_header, seal, verify_digest
from relay.batches.signature import Signer, authenticity

RULES = ("none", "ed25519")


@dataclass(frozen=True, slots=True)
class Application:
    """Application of a site: publishes with confirms, consumes with acks."""

    uri: str
    origin: int
    sink: LoadSink

    async def publish(self, run: bytes, count: int, size: int) -> None:
        source = LoadSource(self.uri, run, self.origin, "orders", Noise(size))
        await source.open()
        await source.publish(count)
        await source.close()


class LocalMesh:
    """Mesh of private brokers, under `isthmus up`."""

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
        """Write `document` to the mesh file; running nodes take it up."""
        self._file.write_text(json.dumps(self.document))

    def run(self, command: str, *options: str) -> str:
        where = [str(self._file), "--state", str(self._state)]
        ended = subprocess.run(
            [sys.executable, "-m", "isthmus", command, *where, *options],
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        return ended.stdout

    def up(self) -> None:
        self.run("up", "--detach", *self._rabbitmq)

    def down(self) -> None:
        self.run("down")

    def uri(self, site: str) -> str:
        return self.run("uri", site).strip()

    def status(self) -> dict[str, Any]:
        """Return the object that `isthmus status --json` prints."""
        found: dict[str, Any] = json.loads(self.run("status", "--json"))
        return found


async def listening(mesh: LocalMesh, sites: list[str]) -> list[Application]:
    """Start an application at each site, with a queue of all messages due there."""
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
    count: int,
    size: int,
    origins: int,
) -> tuple[float, float]:
    """Publish a round and return the nodes' microseconds a delivery, and deliveries a second.

    `origins` is the number of sites whose messages each application's queue gets.
    """
    sites, run = len(applications), os.urandom(RUN_BYTES)
    for one in applications:
        one.sink.begin(run)
    before = sum(map(cpu_s, nodes))
    began = time.monotonic()
    await asyncio.gather(*(one.publish(run, count, size) for one in applications))

    async def came() -> bool:
        return all(one.sink.delivered == count * origins for one in applications)

    await until(came, "all deliveries", within_s=600)
    took = max(one.sink.last_at_ns for one in applications) / 1e9 - began
    deliveries = count * sites * (sites - 1)
    node_s = sum(map(cpu_s, nodes)) - before
    return node_s / deliveries * 1e6, deliveries / took


def median_us(work: Callable[[], object], times: int = 300) -> float:
    """Return the median time of one call."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e6


def one_batch(messages: int, size: int) -> None:
    """Print the time of each step of one batch."""
    key = Ed25519PrivateKey.generate()
    site = Site("paris", "paris", public_keys=(public_key_text(key.public_key()),))
    mesh = Mesh(
        *("bench", "", 0.0, ForwardingRule.RING, {"paris": site}),
        *({"orders": Exchange("orders")}, (), {"paris": "paris"}),
        signing=SigningRule.ED25519,
    )
    signer, check = Signer.of("bench", key), authenticity(mesh)
    name = BatchName(Series("paris", bytes(8), "orders", 0, ()), 1)
    bare = BatchHeader(
        BatchKind.MESSAGES, name, 1, (), "r1", 0, 0, 0, 0, 9, 9, ("paris",), format=2
    )
    bodies = [os.urandom(size // 2) + bytes(size - size // 2) for _ in range(messages)]
    entries = [Entry(os.urandom(16), b"order.new", b"\0\0", body, 9) for body in bodies]
    header, data = seal(bare, entries, signer)
    sealed = median_us(lambda: seal(bare, entries))
    signed = median_us(lambda: seal(bare, entries, signer))
    read = median_us(lambda: read_header(data)) + median_us(lambda: verify_digest(data))
    checked = median_us(lambda: check.check(header, data))
    print(
        f"{messages} messages of {size} B, {len(data)} B sealed: seal {sealed:.0f} us, signed "
        f"{signed:.0f} us ({signed - sealed:+.0f}); receive {read:.0f} us, checked "
        f"{read + checked:.0f} us ({checked:+.0f})",
        flush=True,
    )


async def measure(
    mesh: LocalMesh, sites: list[str], rounds: int, count: int, size: int
) -> dict[str, list[tuple[float, float]]]:
    """Return each round's deliveries a second and nodes' microseconds a delivery, by rule."""
    applications = await listening(mesh, sites)
    nodes = [site["node_pid"] for site in mesh.status()["sites"].values()]
    found: dict[str, list[tuple[float, float]]] = {rule: [] for rule in RULES}
    origins = len(sites) - (mesh.local_exchange != "orders")
    for number in range(rounds + 1):
        for rule in RULES:
            await set_rule(mesh, rule)
            node_us, rate = await one_round(applications, nodes, count, size, origins)
            if number:  # the first of each warms up
                found[rule].append((rate, node_us))
                print(f"{rule:8}{rate:10,.0f} deliveries/s, nodes {node_us:.1f} us", flush=True)
    for application in applications:
        await application.sink.close()
    return found


async def set_rule(mesh: LocalMesh, rule: str) -> None:
    """Write the signing rule to the file, and wait until every node has it."""
    mesh.document["signing"] = rule
    mesh.write()

    async def everywhere() -> bool:
        status = mesh.status()
        return all(site["revision"] == status["revision"] for site in status["sites"].values())

    await until(everywhere, "taken up by all nodes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, default=2)
    parser.add_argument("--messages", type=int, default=30_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rabbitmq")
    options = parser.parse_args()
    for messages, size in ((1, 256), (256, 256), (256, 1024)):
        one_batch(messages, size)
    sites = [f"site{number}" for number in range(options.sites)]
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as name:
        folder = Path(name)
        mesh = LocalMesh(folder, sites, ExchangeMode.SPLIT.value, options.rabbitmq)
        mesh.document["batch_format"] = 2
        for site in sites:
            key = Ed25519PrivateKey.generate()
            (folder / f"{site}.pem").write_bytes(private_key_pem(key))
            mesh.document["sites"][site] = {
                "public_key": public_key_text(key.public_key()),
                "private_key": f"file:{site}.pem",
            }
        mesh.write()
        mesh.up()
        try:
            found = uvloop.run(measure(mesh, sites, options.rounds, options.messages, options.size))
        finally:
            mesh.down()
    rates, costs = (
        {rule: statistics.median(one[which] for one in found[rule]) for rule in RULES}
        for which in (0, 1)
    )
    print(
        f"medians: {rates['ed25519']:,.0f} of {rates['none']:,.0f} deliveries/s, ratio "
        f"{rates['ed25519'] / rates['none']:.3f}; nodes' CPU {costs['ed25519']:.1f} for "
        f"{costs['none']:.1f} us, ratio {costs['ed25519'] / costs['none']:.3f}"
    )


if __name__ == "__main__":
    main()
