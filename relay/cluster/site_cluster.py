"""Connections of a node to its site's Cassandra and ZooKeeper, while it follows or runs."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from dedup.journal.cassandra_session import CassandraAccess, open_journal
from dedup.journal.journal import Journal, JournalAway
from dedup.journal.slot_copy import COPY, SlotCopy
from federation.brokers.addresses import AddressBook, context_of
from federation.brokers.broker_uri import parse_host_port
from federation.brokers.credentials import resolve_password
from federation.mesh import EnsemblePlace, JournalPlace
from relay.cluster.coordination import Coordination
from relay.cluster.slot_turns import ClusterMember, CopyProgress, SlotTurns, shared
from relay.cluster.zookeeper import ZookeeperAccess, ZookeeperCoordination
from relay.lease import WHERE_A_JOURNAL_DECIDES
from relay.node.brokers import RabbitBrokers, holder_of
from relay.node.machine import Machine, boot_id, open_store, this_machine
from relay.retry import Backoff
from relay.state.node_state import POINT_TABLES, TABLES

SLOT = 0
_LOCK_HEARTBEAT_S = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteCluster:
    """Servers that the nodes of one site share."""

    cassandra: CassandraAccess
    zookeeper: ZookeeperAccess

    @asynccontextmanager
    async def connected(
        self,
        member: ClusterMember,
        slot: int,
        random_bytes: Callable[[int], bytes],
        report: Callable[[str], None],
    ) -> AsyncIterator[SlotTurns]:
        """Connect as a node. `report` is called with what is waited for. Raises JournalRefused."""
        async with self.servers(slot, report) as (coordination, journal):
            yield SlotTurns(
                slot=slot,
                member=member,
                coordination=coordination,
                journal=journal,
                session_s=self.zookeeper.session_s,
                random_bytes=random_bytes,
                random=random.random,
            )

    @asynccontextmanager
    async def servers(
        self, slot: int, report: Callable[[str], None]
    ) -> AsyncIterator[tuple[Coordination, Journal]]:
        """Connect to both. `report` is called with what is waited for. Raises JournalRefused."""
        backoff = Backoff(0.2, 5.0, random.random)
        failures = 0
        while True:
            try:
                session, journal = await asyncio.to_thread(open_journal, self.cassandra, slot)
                break
            except JournalAway as error:
                failures += 1
                report(f"connecting to Cassandra: {error}")
                await asyncio.sleep(backoff.delay_s(failures))
        try:
            coordination = ZookeeperCoordination(self.zookeeper)
            coordination.start()
            try:
                yield coordination, journal
            finally:
                await coordination.close()
        finally:
            await asyncio.to_thread(session.cluster.shutdown)


def cluster_of(book: AddressBook, site: str) -> SiteCluster:
    """Return what the mesh says of a site's cluster. Raises PasswordMissing, TlsUnusable,
    ServersNotKnown.
    """
    group = book.nodes_of(site)
    place, ensemble = group.cassandra, group.zookeeper

    def password_of(server: JournalPlace | EnsemblePlace) -> str:
        return resolve_password(server.password, book.environ) if server.user else ""

    return SiteCluster(
        cassandra=CassandraAccess(
            hosts=[parse_host_port(host) for host in place.hosts],
            datacenter=place.datacenter,
            keyspace=place.keyspace,
            replication=place.replication,
            user=place.user,
            password=password_of(place),
            tls=None if place.tls is None else context_of(place.tls),
        ),
        zookeeper=ZookeeperAccess(
            hosts=",".join(ensemble.hosts),
            root=f"/isthmus/{book.mesh.name}/{site}",
            session_s=group.session_s,
            user=ensemble.user,
            password=password_of(ensemble),
            tls=ensemble.tls,
        ),
    )


def machine_of_node(book: AddressBook, site: str, node: str, folder: Path) -> Machine:
    """Return this machine, with the state that the node shares with the site's others. Raises
    PasswordMissing, TlsUnusable, ServersNotKnown.
    """
    machine = this_machine()
    cluster = cluster_of(book, site)
    progress = CopyProgress()
    member = ClusterMember(node, machine.random_bytes(8).hex(), holder_of(folder, boot_id()).hex())

    def connected(report: Callable[[str], None]) -> AbstractAsyncContextManager[SlotTurns]:
        return cluster.connected(member, SLOT, machine.random_bytes, report)

    return replace(
        machine,
        # What is written and not in the journal is gone with each node, as after a power cut.
        boot_id=lambda: str(uuid.uuid4()),
        shares_power=False,
        open_state=shared(
            connected,
            lambda folder: SlotCopy(open_store(folder, COPY), TABLES, POINT_TABLES),
            progress,
        ),
        copy_report=progress.report,
    )


def brokers_of_node(site: str, folder: Path) -> RabbitBrokers:
    """Return the node's way to its brokers, which soon notice that the node is gone."""
    return RabbitBrokers(
        site,
        holder_of(folder, boot_id()),
        _LOCK_HEARTBEAT_S,
        lease_times=WHERE_A_JOURNAL_DECIDES,
    )
