"""ZooKeeper and Cassandra with TLS and passwords, as a site's nodes reach them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from federation.mesh import TlsFiles
from relay.cluster.coordination import CoordinationAway, CoordinationRefused
from tests.protected_servers import Protected
from tests.waiting import until

pytestmark = pytest.mark.long


@pytest.fixture
async def protected(tmp_path: Path) -> AsyncIterator[Protected]:
    async with Protected.started(tmp_path) as started:
        yield started


async def test_nodes_are_known_by_certificate_and_password_and_others_are_refused(
    protected: Protected,
) -> None:
    from dedup.journal.cassandra_session import CassandraAccess, connect
    from dedup.journal.journal import JournalAway, JournalRefused
    from isthmus.cluster_parts.cassandra_nodes import SUPERUSER
    from relay.cluster.zookeeper import ZookeeperAccess, ZookeeperCoordination

    async with AsyncExitStack() as ended:

        def joined(access: ZookeeperAccess) -> ZookeeperCoordination:
            node = ZookeeperCoordination(access)
            node.start()
            ended.push_async_callback(node.close)
            return node

        access = ZookeeperAccess(
            hosts=",".join(protected.zookeeper.hosts),
            root="/isthmus/test/paris",
            user="paris",
            password="right",
            tls=protected.node,
        )
        node, guesser = joined(access), joined(replace(access, password="wrong"))
        for one in (node, guesser):
            await until(lambda one=one: one.steady_since is not None, "it is connected", 30)
        assert await node.add("slots/0/owner", b"of the node")
        with pytest.raises(CoordinationRefused, match="check path and rights"):
            await guesser.read("slots/0/owner")

        async def says(files: TlsFiles | None, words: str) -> None:
            out = joined(replace(access, tls=files))

            async def is_told() -> bool:
                try:
                    await out.read("slots/0/owner")
                except CoordinationAway as error:
                    return words in str(error)
                raise AssertionError("a stranger was let in")

            await until(is_told, f"what is wrong is told: {words}", 30)

        await says(protected.deceived, "CERTIFICATE_VERIFY_FAILED")
        await says(protected.stranger, "Connection")
        await says(None, "Connection")

    place = CassandraAccess(
        hosts=[(protected.cassandra.addresses[0], protected.cassandra.port)],
        datacenter="datacenter1",
        keyspace="paris",
        replication=1,
        user=SUPERUSER[0],
        password=SUPERUSER[1],
        tls=protected.context(protected.node),
    )

    async def is_in() -> bool:
        try:
            session = await asyncio.to_thread(connect, place)
        except JournalRefused:
            return False  # the user is made a moment after the start
        session.cluster.shutdown()
        return True

    await until(is_in, "the node is let in", 60)
    with pytest.raises(JournalRefused, match="and/or password are incorrect"):
        await asyncio.to_thread(connect, replace(place, password="wrong"))
    deceived = replace(place, tls=protected.context(protected.deceived))
    with pytest.raises(JournalAway, match="CERTIFICATE_VERIFY_FAILED"):
        await asyncio.to_thread(connect, deceived)
    for files in (protected.stranger, None):
        tls = None if files is None else protected.context(files)
        with pytest.raises(JournalAway):
            await asyncio.to_thread(connect, replace(place, tls=tls))
