"""What a mesh costs as it grows: copies of each batch over links, and memory, without any fault."""

from __future__ import annotations

import random
import resource
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from relay.batches.batch import BatchKind, BatchName
from relay.batches.format import read_header
from relay.log.memory_log import MemoryStream
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
        logs = {site: _Log(broker.stream) for site, broker in world.brokers.items()}
        try:
            world.start()
            await world.publish(Load(messages, 5.0, big_one_in=1_000_000))

            def is_settled() -> bool:
                return world.is_drained() and _all_alike(logs.values())

            await world.until(is_settled, world.left, SETTLED_WITHIN_S)
            sent = sum(_sent_from(world, site) - log.canaries for site, log in logs.items())
            return len(next(iter(logs.values())).names), sent
        finally:
            await world.kill()

    with tempfile.TemporaryDirectory(prefix="isthmus-growth-") as folder:
        batches, sent = run_in_virtual_time(live(Path(folder)))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return Grown(sites, len(mesh.links), batches, sent, peak_mb)


class _Log:
    """What a site's log has: looked at anew only where it has grown."""

    def __init__(self, stream: MemoryStream) -> None:
        self.names: set[BatchName] = set()
        """Of what goes to every site: not of canaries."""
        self.canaries = 0
        """Of neighbours."""
        self._stream = stream
        self._next = 0

    def look(self) -> None:
        while records := self._stream.chunk_at(self._next):
            self._next = records[-1].offset + 1
            for header in (read_header(record.data) for record in records):
                if header.kind is not BatchKind.CANARY:
                    self.names.add(header.name)
                elif len(header.path) > 1:
                    self.canaries += 1


def _all_alike(logs: Collection[_Log]) -> bool:
    """Whether each log has every batch, marks as well: these are no messages, and no lag."""
    for log in logs:
        log.look()
    first = next(iter(logs)).names
    return bool(first) and all(log.names == first for log in logs)


def _sent_from(world: World, site: str) -> int:
    node = world.sites[site].node
    assert node is not None
    assert node.stages is not None
    return sum(int(one["sent"]) for one in node.stages.links.reports())
