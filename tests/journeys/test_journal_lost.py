"""The journal of a site of two nodes is lost: a node that starts stops and says why, `isthmus
recover` rebuilds the state from the site's log, read through the content store.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from pathlib import Path

import pytest

from federation.names import Names
from relay.content.reference import ContentReference
from relay.log.rabbit.rabbit_log import open_rabbit_log
from tests.journeys.application import at, letter
from tests.journeys.conftest import MeshFactory
from tests.journeys.content_site import (
    ANSWERS,
    OTHER,
    BothWays,
    log_of,
    mesh_with_content,
    store_of,
)
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.several_nodes import NODES, SITE, SiteServers
from tests.journeys.supervised_mesh import isthmus
from tests.journeys.test_state_lost import STOPPED, doubted
from tests.waiting import until

MIB = 2**20
TABLES = ("owner", "journal", "snapshot", "snapshots", "site")
"""Tables of the keyspace but that of contents."""


async def execute(mesh: LiveMesh, *statements: str) -> None:
    """Have the site's Cassandra carry these statements out."""
    async with store_of(mesh) as session:
        for statement in statements:
            await asyncio.to_thread(session.execute, statement, timeout=60)


async def kill_all(mesh: LiveMesh) -> None:
    for node in NODES:
        mesh.kill(f"{SITE}/{node}")


async def until_marked(mesh: LiveMesh) -> None:
    """Wait until the broker's mark is at the last large message in the site's log."""
    log = await log_of(mesh, SITE)
    last = max(one.offset for one in log if ContentReference.decode(one.data) is not None)
    names = Names(mesh.mesh.name)

    async def is_marked() -> bool:
        mark_name = names.deliverer_mark
        uri = mesh.book.stream(SITE)
        log = await open_rabbit_log(uri, names.log, mark_name=mark_name, name="test")
        try:
            return (await log.load_mark() or 0) >= last
        finally:
            await log.close()

    await until(is_marked, mesh.logs, 60, every_s=0.5)


async def recovered(mesh: LiveMesh) -> str:
    """See a node stop as its journal is lost, and recover; what the command says."""
    mesh.start_node(SITE, NODES[0])
    assert await mesh.dies(f"{SITE}/{NODES[0]}") == STOPPED
    log = (mesh.folder / f"{SITE}-{NODES[0]}.log").read_text()
    assert "the journal of the state that the site's nodes share is empty" in log
    assert "`isthmus recover FILE --site SITE` rebuilds it" in log
    code, said = await isthmus(mesh, "recover", "--site", SITE)
    assert code == 0, said
    return said


@pytest.mark.slow
async def test_of_a_journal_whose_tables_were_truncated_nothing_is_lost_or_repeated_unflagged(
    live_mesh: MeshFactory, tmp_path: Path
) -> None:
    async with SiteServers.started(tmp_path, 1) as servers:
        mesh = await mesh_with_content(live_mesh, servers)
        async with at(mesh, OTHER, SITE) as sites:
            ways = BothWays(random.Random(31), sites)
            await ways.listen()
            await ways.post(50, 2 * MIB, *[50] * 9, 3 * MIB, 50)
            await ways.arrive(mesh)
            await ways.post(*[50] * 10)
            await ways.arrive(mesh)
            await until_marked(mesh)
            await ways.post(2 * MIB, *[50] * 8, 2 * MIB, way=1)
            await ways.arrive(mesh)
            await ways.post(2 * MIB, *[50] * 8, 2 * MIB)
            await kill_all(mesh)
            await execute(mesh, *(f"TRUNCATE {table}" for table in TABLES))
            await ways.post(*[50] * 5, 2 * MIB)
            said = await recovered(mesh)
            assert "content is gone" not in said
            most = doubted(said)
            code, said = await isthmus(mesh, "recover", "--site", SITE)
            assert (code, "the journal has the state" in said) == (1, True), said
            for node in NODES:
                mesh.start_node(SITE, node)
            await mesh.running()
            code, said = await isthmus(mesh, "recover", "--site", SITE)
            assert (code, "end all nodes of the site first" in said) == (1, True), said
            await ways.post(50, 2 * MIB, 50, 50)
            await ways.arrive(mesh)
            assert ways.flagged(1) <= most
            # What was recovered goes to the site's other node as any state does.
            runs = await mesh.node_that_runs(SITE)
            mesh.kill(f"{SITE}/{runs}")
            await ways.post(50, 2 * MIB, 50, 50)
            await ways.arrive(mesh)
            assert await mesh.node_that_runs(SITE) != runs


@pytest.mark.slow
async def test_of_a_keyspace_that_was_dropped_large_messages_in_doubt_are_gaps(
    live_mesh: MeshFactory, tmp_path: Path
) -> None:
    chance = random.Random(32)
    settled, doubtful = chance.randbytes(2 * MIB), chance.randbytes(3 * MIB)
    async with SiteServers.started(tmp_path, 1) as servers:
        mesh = await mesh_with_content(live_mesh, servers)
        origin = mesh.cluster(OTHER)
        async with at(mesh, OTHER, SITE) as (paris, tokyo):
            large, small = await tokyo.listen(ANSWERS), await tokyo.listen("prices")
            await paris.post(ANSWERS, letter(settled, str(uuid.uuid4())))
            await large.has(1)
            # The mark may be a little before what was delivered last.
            for number in range(5):
                await paris.post("prices", letter(b"%d" % number, str(uuid.uuid4())))
                await small.has(number + 1)
            await until_marked(mesh)
            code, said = await isthmus(mesh, "pause", "--site", SITE)
            assert code == 0, said
            await paris.post(ANSWERS, letter(doubtful, str(uuid.uuid4())))
            await paris.post("prices", letter(b"last", str(uuid.uuid4())))
            flows = f"{origin}/{ANSWERS}", f"{origin}/prices"
            await mesh.until_told(
                lambda told: all(
                    "paused" in told["sites"][SITE]["standing_flows"].get(flow, "")
                    for flow in flows
                ),
                "both flows are paused",
            )
            await kill_all(mesh)
            keyspace = mesh.mesh.sites[SITE].nodes
            assert keyspace is not None
            await execute(mesh, f"DROP KEYSPACE {keyspace.cassandra.keyspace}")

            said = await recovered(mesh)
            doubt = doubted(said)
            assert 2 <= doubt <= 7, said
            assert "of 1 large message already delivered the content is gone" in said
            for node in NODES:
                mesh.start_node(SITE, node)
            await mesh.until_told(
                lambda told: told["sites"][SITE]["state"] == "paused",
                "the order to pause was with the state, and holds",
                within_s=120,
            )
            code, said = await isthmus(mesh, "resume", "--site", SITE)
            assert code == 0, said
            await small.has(5 + doubt - 1)
            again = [(m.body, m.flagged) for m in small.got[5:]]
            assert (
                again
                == [(body, True) for body in (b"0", b"1", b"2", b"3", b"4", b"last")][-len(again) :]
            )
            reason = await mesh.until_told(
                lambda told: told["sites"][SITE]["standing_flows"].get(flows[0]), "the flow stands"
            )
            assert "gap" in reason
            assert "is gone" in reason
            await paris.post(ANSWERS, letter(settled, str(uuid.uuid4())), letter(b"after"))

            async def goes_on() -> bool:
                # Each piece of the message is a gap.
                await isthmus(mesh, "accept-gap", SITE, "--yes")
                return len(large.got) >= 3

            await until(goes_on, mesh.logs, 120, every_s=1)
            assert [m.body for m in await large.has(3)] == [settled, settled, b"after"]
            assert not any(m.flagged for m in large.got)
