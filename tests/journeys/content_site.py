"""A site of two nodes that keeps large messages in its Cassandra, beside one of a single node."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from federation.brokers.broker_uri import parse_host_port
from federation.names import Names
from relay.log.rabbit.rabbit_log import open_rabbit_log
from relay.log.site_log import Record
from tests.journeys.application import Application, Inbox, Received, letter
from tests.journeys.conftest import MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.several_nodes import NODES, SITE, SiteServers
from tests.waiting import until

if TYPE_CHECKING:
    from cassandra.cluster import Session

OTHER = "paris"
EXCHANGES = ("orders", "prices", "news")
ANSWERS = "answers"
"""Exchange into which nobody publishes at SITE."""
REFERRED = "films"
"""Exchange whose large messages consumers at SITE get without their bodies."""
ABOVE = "1MiB"


async def mesh_with_content(
    make: MeshFactory, servers: SiteServers, *, program: str = "isthmus", **more: Any
) -> LiveMesh:
    """A running mesh: SITE of two nodes, with a content store, and OTHER of one, without. The nodes
    are those of the program.
    """
    keys = {"nodes": NODES, "cluster": servers.keys, "content": {"above": ABOVE}}
    exchanges = [{"name": name} for name in (*EXCHANGES, ANSWERS)]
    exchanges.append({"name": REFERRED, "large": "reference"})
    sites = {OTHER: {}, SITE: keys}
    mesh = await make(*sites, sites=sites, exchanges=exchanges, topology="complete", **more)
    mesh.program = program
    mesh.start_each()
    await mesh.running()
    return mesh


class BothWays:
    """Numbered messages from SITE to OTHER and back, in turns, and what came of them."""

    def __init__(self, chance: random.Random, sites: list[Application]) -> None:
        """`sites` are applications at OTHER and SITE."""
        paris, tokyo = sites
        self._chance = chance
        self._ways = ((tokyo, "orders", paris), (paris, ANSWERS, tokyo))
        self._boxes: list[Inbox] = []
        self._sent: tuple[dict[int, bytes], ...] = ({}, {})
        """Digests of the bodies of each way, by number."""

    async def listen(self) -> None:
        self._boxes = [await to.listen(exchange) for _, exchange, to in self._ways]

    async def post(self, *sizes: int, way: int | None = None) -> None:
        """Post a message of each size, about; all of them one `way`, 0 for the one from SITE, or in
        turns. One in four messages has no ID.
        """
        for size in sizes:
            number = sum(map(len, self._sent))
            which = number % 2 if way is None else way
            sender, exchange, _ = self._ways[which]
            body = b"%d " % number + self._chance.randbytes(size)
            self._sent[which][number] = blake2b(body).digest()
            await sender.post(exchange, letter(body, str(uuid.uuid4()) if number % 4 else ""))

    @property
    def arrived(self) -> int:
        """Number of messages that have come, copies included."""
        return sum(len(box.got) for box in self._boxes)

    def flagged(self, way: int) -> int:
        """Number of messages of one way that came flagged."""
        return sum(message.flagged for message in self._boxes[way].got)

    async def arrive(self, mesh: LiveMesh, within_s: float = 180) -> None:
        """Wait until all are there; raise AssertionError unless they came whole, in order, and but
        for flagged copies once.
        """
        for box, bodies in zip(self._boxes, self._sent, strict=True):
            await until(
                lambda: {_number_of(m) for m in box.got} >= bodies.keys(),  # noqa: B023
                mesh.logs,
                within_s,
            )
            assert all(blake2b(m.body).digest() == bodies[_number_of(m)] for m in box.got)
            firsts = [_number_of(m) for m in box.got if not m.flagged]
            assert firsts == sorted(set(firsts)), "once each, in order; repeats are flagged"


def _number_of(message: Received) -> int:
    return int(message.body[:12].split(b" ", 1)[0])


async def log_of(mesh: LiveMesh, site: str) -> list[Record]:
    """Records of a site's log, as they stand there."""
    names = Names(mesh.mesh.name)
    log = await open_rabbit_log(
        mesh.book.stream(site), names.log, mark_name=names.deliverer_mark, name="test"
    )
    try:
        end, records = await log.end(), list[Record]()
        cursor = await log.read(0)
        while end is not None and (not records or records[-1].offset < end):
            records += await cursor.next()
        return records
    finally:
        await log.close()


@asynccontextmanager
async def store_of(mesh: LiveMesh) -> AsyncIterator[Session]:
    """A session with the keyspace of SITE."""
    from dedup.journal.cassandra_session import CassandraAccess, connect

    nodes = mesh.mesh.sites[SITE].nodes
    assert nodes is not None
    place = nodes.cassandra
    access = CassandraAccess(
        hosts=[parse_host_port(host) for host in place.hosts],
        datacenter=place.datacenter,
        keyspace=place.keyspace,
        replication=place.replication,
    )
    session = await asyncio.to_thread(connect, access)
    try:
        yield session
    finally:
        await asyncio.to_thread(session.cluster.shutdown)


def chunks_in(session: Session) -> dict[tuple[bytes, int], int]:
    """The seconds that each chunk of the content store has to live."""
    rows = session.execute("SELECT id, chunk, TTL(data) AS life FROM content")
    return {(row.id, row.chunk): row.life for row in rows}
