"""What a mesh costs as it grows: copies of each batch over links, and memory, without any fault."""

from __future__ import annotations

import random
import resource
import tempfile
from pathlib import Path
from typing import NamedTuple

from relay.batches.batch import BatchName
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
            return len(_names(world)), sum(_sent_from(world, site) for site in world.sites)
        finally:
            await world.kill()

    with tempfile.TemporaryDirectory(prefix="isthmus-growth-") as folder:
        batches, sent = run_in_virtual_time(live(Path(folder)))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return Grown(sites, len(mesh.links), batches, sent, peak_mb)


def _all_alike(world: World) -> bool:
    """Whether each log has every batch, marks as well: these are no messages, and no lag."""
    lengths = {broker.stream.next_offset for broker in world.brokers.values()}
    return len(lengths) == 1 and 0 not in lengths and lengths == {len(_names(world))}


def _names(world: World) -> set[BatchName]:
    records = (record for broker in world.brokers.values() for record in broker.stream.records)
    return {read_header(record.data).name for record in records}


def _sent_from(world: World, site: str) -> int:
    node = world.sites[site].node
    assert node is not None
    assert node.stages is not None
    return sum(int(one["sent"]) for one in node.stages.links.reports())
