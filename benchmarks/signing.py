"""What signing costs: microseconds a batch, and what is left of a mesh's throughput.

    .venv/bin/python -m benchmarks.signing [--sites 2] [--messages 30000] [--size 1024] [--rounds 5]
                                           [--rabbitmq DIR]

First sealing, signing and checking of one batch, alone. Then `isthmus up` runs private brokers on
loopback, a complete graph; its mesh file says `signing: ed25519` and `none` in turn, which the
nodes take up as they run, and a round of messages goes from every site to every other each time,
with confirms, as in `benchmarks.relay_share`. Printed: deliveries a second and the nodes' CPU a
delivery, medians of the rounds of each kind, and their ratios, which alone may be compared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import uvloop
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.compare.until import until
from benchmarks.relay_share import Mesh, listening, one_round
from federation.mesh import Exchange, ExchangeMode, ForwardingRule, SigningRule, Site
from federation.mesh import Mesh as MeshValue
from federation.signing_keys import private_key_pem, public_key_text
from relay.batches.batch import BatchHeader, BatchKind, BatchName, Entry, Series
from relay.batches.format import read_header, seal, verify_digest
from relay.batches.signature import Signer, authenticity

RULES = ("none", "ed25519")


def median_us(work: Callable[[], object], times: int = 300) -> float:
    """Of one call."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e6


def one_batch(messages: int, size: int) -> None:
    """Print what each step of one batch takes."""
    key = Ed25519PrivateKey.generate()
    site = Site("paris", "paris", public_keys=(public_key_text(key.public_key()),))
    mesh = MeshValue(
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
    mesh: Mesh, sites: list[str], rounds: int, count: int, size: int
) -> dict[str, list[tuple[float, float]]]:
    """By rule, (deliveries a second, microseconds of nodes a delivery) of each round."""
    applications = await listening(mesh, sites)
    nodes, brokers = mesh.each("node_pid"), mesh.each("broker_pid")
    found: dict[str, list[tuple[float, float]]] = {rule: [] for rule in RULES}
    origins = len(sites) - (mesh.local_exchange != "orders")
    for number in range(rounds + 1):
        for rule in RULES:
            await taken_up(mesh, rule)
            node_us, _, rate = await one_round(applications, nodes, brokers, count, size, origins)
            if number:  # the first of each warms up
                found[rule].append((rate, node_us))
                print(f"{rule:8}{rate:10,.0f} deliveries/s, nodes {node_us:.1f} us", flush=True)
    for application in applications:
        await application.sink.close()
    return found


async def taken_up(mesh: Mesh, rule: str) -> None:
    """The file says so, and every node has it."""
    mesh.document["signing"] = rule
    mesh.write()

    async def everywhere() -> bool:
        told = mesh.told()
        return all(site["revision"] == told["revision"] for site in told["sites"].values())

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
        mesh = Mesh(folder, sites, ExchangeMode.SPLIT.value, options.rabbitmq)
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
