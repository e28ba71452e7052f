"""What a mesh costs as it grows: copies of each batch over links, and memory, without any fault."""

from __future__ import annotations

import random
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from relay.batches.batch import BatchHeader, BatchKind, BatchName
from relay.batches.format import read_header
from simulation.load import Load
from simulation.topologies import simulated_mesh
from simulation.virtual_time import run_in_virtual_time
from simulation.world import World

SETTLED_WITHIN_S = 900.0


class Grown(NamedTuple):
    """`sent`: batches over all links, each time they were. `links` are directed."""

    sites: int
    links: int
    batches: int
    sent: int
    peak_mb: int
    """Of this process so far: only that of a new one says something."""


def grow(topology: str, sites: int, messages: int) -> Grown:
    """Run such a mesh until all that it publishes, so many messages a site, is everywhere. Raises
    NoSuchMesh, NotInTime.
    """
    mesh = simulated_mesh(topology, sites, 1)

    async def live(folder: Path) -> tuple[int, int]:
        world = World(mesh, folder, random.Random(1))
        try:
            world.start()
            await world.publish(Load(messages, 5.0, big_one_in=1_000_000))
            await world.until(
                lambda: world.is_drained() and _all_alike(world), world.left, SETTLED_WITHIN_S
            )
            sent = sum(
                _sent_from(world, site) - _canaries_into(world, site) for site in world.sites
            )
            return len(_names(world, next(iter(world.sites)))), sent
        finally:
            await world.kill()

    with tempfile.TemporaryDirectory(prefix="isthmus-growth-") as folder:
        batches, sent = run_in_virtual_time(live(Path(folder)))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return Grown(sites, len(mesh.links), batches, sent, peak_mb)


def _all_alike(world: World) -> bool:
    """Whether each log has every batch, marks as well: these are no messages, and no lag."""
    found = [_names(world, site) for site in world.sites]
    return bool(found[0]) and all(one == found[0] for one in found)


def _names(world: World, site: str) -> set[BatchName]:
    """Of what goes to every site: not of canaries."""
    return {one.name for one in _headers(world, site) if one.kind is not BatchKind.CANARY}


def _headers(world: World, site: str) -> Iterator[BatchHeader]:
    return (read_header(record.data) for record in world.brokers[site].stream.records)


def _canaries_into(world: World, site: str) -> int:
    found = (one for one in _headers(world, site) if one.kind is BatchKind.CANARY)
    return sum(len(one.path) > 1 for one in found)


def _sent_from(world: World, site: str) -> int:
    node = world.sites[site].node
    assert node is not None
    assert node.stages is not None
    return sum(int(one["sent"]) for one in node.stages.links.reports())
