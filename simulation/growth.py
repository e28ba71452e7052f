"""Cost of a growing mesh without faults: copies of each batch over links, and memory."""

from __future__ import annotations

import random
import resource
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from relay.batches.batch import BatchKind, BatchName
from simulation.load import Load
from simulation.positions import ObservedLog
from simulation.topologies import simulated_mesh
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
    node = world.sites[site].node
    assert node is not None
    assert node.stages is not None
    return sum(int(one["sent"]) for one in node.stages.links.reports())
