"""Cost of a growing mesh: copies of a batch, and memory a site, in the simulation.

    python -m benchmarks.growth                          trees of 25, 50, 100, 200 sites
    python -m benchmarks.growth --topology one-way-ring --sites 50,100
    python -m benchmarks.growth --topology ring --messages 5

Each size is a process of its own, one after the other. Every site begins with two marks, which go
everywhere: so there is something of each origin at each site, without a message as well. Memory is
that of the whole process, brokers' logs included, less that of the smallest mesh.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import random
import resource
import tempfile
from collections.abc import Collection
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from relay.batches.batch import BatchKind, BatchName
from simulation.load import Load
from simulation.positions import ObservedLog
from simulation.topologies import FEWEST, simulated_mesh
from simulation.virtual_time import run_in_virtual_time
from simulation.world import World

SETTLED_WITHIN_S = 900.0


class Grown(NamedTuple):
    """Cost of one mesh: `sent` counts batches over all directed links, repetitions included."""

    sites: int
    links: int
    batches: int
    sent: int
    peak_mb: int
    """Peak memory of this process so far: meaningful only for a new process."""


def grow(topology: str, sites: int, messages: int) -> Grown:
    """Run a mesh until its messages are everywhere, so many a site. Raise NoSuchMesh, NotInTime."""
    mesh = simulated_mesh(topology, sites, 1)

    async def live(folder: Path) -> tuple[int, int]:
        world = World(mesh, folder, random.Random(1))
        logs = world.positions.logs
        try:
            world.start()
            await world.publish(Load(messages, 5.0, big_one_in=1_000_000))

            def is_settled() -> bool:
                return world.is_drained() and _all_alike(logs.values())

            await world.until(is_settled, world.left, SETTLED_WITHIN_S)
            sent = sum(_sent_from(world, site) - _canaries_into(log) for site, log in logs.items())
            return len(_names(next(iter(logs.values())))), sent
        finally:
            await world.kill()

    with tempfile.TemporaryDirectory(prefix="isthmus-growth-") as folder:
        batches, sent = run_in_virtual_time(live(Path(folder)))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return Grown(sites, len(mesh.links), batches, sent, peak_mb)


def _all_alike(logs: Collection[ObservedLog]) -> bool:
    """True if each log has every batch, marks included: marks are no messages and no lag."""
    for log in logs:
        log.look()
    first, *others = map(_names, logs)
    return bool(first) and all(names == first for names in others)


def _names(log: ObservedLog) -> set[BatchName]:
    """Return the names of batches that go to every site, so not of canaries."""
    return {one.name for one in log.headers if one.kind is not BatchKind.CANARY}


def _canaries_into(log: ObservedLog) -> int:
    return sum(one.kind is BatchKind.CANARY and len(one.path) > 1 for one in log.headers)


def _sent_from(world: World, site: str) -> int:
    node = world.nodes[site].node
    assert node is not None
    assert node.stages is not None
    return sum(int(one["sent"]) for one in node.stages.links.reports())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topology", default="tree")
    parser.add_argument("--sites", default="25,50,100,200")
    parser.add_argument("--messages", type=int, default=0, help="published at each site")
    options = parser.parse_args()
    sizes = sorted({FEWEST[options.topology], *map(int, options.sites.split(","))})
    grown: list[Grown] = []
    print("  sites  links  batches      sent  /(N-1)     MB  kB/site")
    for sites in sizes:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            pool.apply(logging.disable)  # nodes say that they were killed, in the end
            grown.append(pool.apply(grow, (options.topology, sites, options.messages)))
        one = grown[-1]
        share = one.sent / one.batches / (sites - 1)
        each = (one.peak_mb - grown[0].peak_mb) * 1024 / sites
        print(
            f"{sites:>6} {one.links:>6} {one.batches:>8} {one.sent:>9} {share:>7.3f}"
            f" {one.peak_mb:>6} {each:>8.0f}",
            flush=True,
        )
    base = grown[0].peak_mb
    for former, one in pairwise(grown[1:]):
        # Linear a site in origins: quadratic in all.
        by = ((one.peak_mb - base) / one.sites) / ((former.peak_mb - base) / former.sites)
        print(f"{former.sites} to {one.sites} sites: memory a site x {by:.2f}")


if __name__ == "__main__":
    main()
