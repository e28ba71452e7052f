"""Connections of a node to its site's Cassandra and ZooKeeper, while it follows or runs."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from dedup.journal.cassandra_session import CassandraAccess, JournalSession
from dedup.journal.journal import Journal, JournalAway
from dedup.journal.slot_copy import COPY, SlotCopy
from dedup.journal.slot_taking import until_known
from federation.brokers.addresses import AddressBook, context_of
from federation.brokers.broker_uri import parse_host_port
from federation.brokers.credentials import resolve_password
from federation.mesh import EnsemblePlace, JournalPlace
from federation.slots import ONE_SLOT, SlotMap
from relay.cluster.broker_probe import BrokerProbe
from relay.cluster.coordination import Coordination
from relay.cluster.shared_orders import SharedOrders
from relay.cluster.shared_state import shared
from relay.cluster.site_entries import ClusterMember, SiteEntries
from relay.cluster.slot_turns import CopyProgress, SlotTurns
from relay.cluster.zookeeper import ZookeeperAccess, ZookeeperCoordination
from relay.lease import WHERE_A_JOURNAL_DECIDES
from relay.links.uplink import Uplink
from relay.node.brokers import RabbitBrokers, holder_of
from relay.node.machine import Machine, boot_id, open_store, this_machine
from relay.node.slot_record import check_slots, slots_as_text, slots_of_text
from relay.operator.holds import HOLDS_FILE
from relay.retry import Backoff
from relay.state.node_state import POINT_TABLES, TABLES

T = TypeVar("T")

_LOCK_HEARTBEAT_S = 2
_AGAIN_S = 0.5
_SLOTS = "slots"
"""Name of the fact that says which slots the states in a keyspace are of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteCluster:
    """Ways to the servers that the nodes of one site share."""

    cassandra: CassandraAccess
    zookeeper: ZookeeperAccess


def _recording(slots: SlotMap) -> Callable[[JournalSession], bool]:
    return lambda session: session.replace_fact(_SLOTS, None, slots_as_text(slots))


class SharedServers:
    """Connections of one process to the servers of one site, for all of its slots: made when they
    are first needed, and kept until `close`.
    """

    def __init__(self, cluster: SiteCluster) -> None:
        self.cluster = cluster
        self._connecting = asyncio.Lock()
        self._session: JournalSession | None = None
        self._coordination: ZookeeperCoordination | None = None
        self._journals: dict[int, Journal] = {}

    def coordination(self) -> Coordination:
        """Return the connection to ZooKeeper, which is made in the background."""
        if self._coordination is None:
            self._coordination = ZookeeperCoordination(self.cluster.zookeeper)
            self._coordination.start()
        return self._coordination

    async def journal(self, slot: int, report: Callable[[str], None]) -> Journal:
        """Return a slot's journal once Cassandra can be reached. `report` is called with what is
        waited for. Raises JournalRefused.
        """
        if slot not in self._journals:
            self._journals[slot] = await self._asked(lambda session: session.journal(slot), report)
        return self._journals[slot]

    async def fact(self, name: str) -> str | None:
        """Read a fact about the site. Raises JournalAway, JournalRefused."""
        session = await self._connected()
        return await asyncio.to_thread(session.fact, name)

    async def replace_fact(self, name: str, before: str | None, after: str) -> bool:
        """Write a fact if it is still the one `before`. Raises JournalAway, JournalRefused."""
        session = await self._connected()
        return await asyncio.to_thread(session.replace_fact, name, before, after)

    async def kept_slots(self, slots: SlotMap, report: Callable[[str], None]) -> SlotMap:
        """Return the slots that the states in the keyspace are of, which are these `slots` if there
        is none. Raises as `journal`.
        """
        while True:
            kept = await self._asked(lambda session: session.fact(_SLOTS), report)
            if kept is not None:
                return slots_of_text(kept)
            # A state without a record is of one slot.
            found = ONE_SLOT if await self.has_state(report) else slots
            await self._asked(_recording(found), report)

    async def has_state(self, report: Callable[[str], None]) -> bool:
        """Return True if the first slot had an owner. Raises as `journal`."""
        journal = await self.journal(0, report)

        async def retry(failures: int) -> None:
            report("asking Cassandra whose the state is")
            await asyncio.sleep(_AGAIN_S)

        return await until_known(journal.ownership, retry) is not None

    async def _asked(self, ask: Callable[[JournalSession], T], report: Callable[[str], None]) -> T:
        """Return the answer of a call that blocks, made until Cassandra can be reached."""
        backoff = Backoff(0.2, 5.0, random.random)
        failures = 0
        while True:
            try:
                return await asyncio.to_thread(ask, await self._connected())
            except JournalAway as error:
                failures += 1
                report(f"connecting to Cassandra: {error}")
                await asyncio.sleep(backoff.delay_s(failures))

    async def _connected(self) -> JournalSession:
        """Return the session with Cassandra. Raises JournalAway, JournalRefused."""
        async with self._connecting:
            if self._session is None:
                self._session = await asyncio.to_thread(JournalSession, self.cluster.cassandra)
            return self._session

    async def close(self) -> None:
        """End both sessions, with all entries of this process. Raises nothing."""
        if self._coordination is not None:
            await self._coordination.close()
        if self._session is not None:
            await asyncio.to_thread(self._session.close)


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


class NodeInCluster:
    """One node of a site with a cluster, in one process. Raises PasswordMissing, TlsUnusable,
    ServersNotKnown.
    """

    def __init__(
        self, book: AddressBook, site: str, node: str, folder: Path, uplink: Uplink
    ) -> None:
        """`book` is the first; `folder` and `uplink` are the node's, of all its slots."""
        self.book: Callable[[], AddressBook] = lambda: book
        """Present addresses, for the probe of the broker."""
        self._site = site
        self._folder = folder
        self._uplink = uplink
        self._machine = this_machine()
        self._held: set[int] = set()
        """Slots that this node runs."""
        self._slots = book.mesh.sites[site].slots
        self._servers = SharedServers(cluster_of(book, site))
        run, place = self._machine.random_bytes(8).hex(), holder_of(folder, boot_id()).hex()
        self._member = ClusterMember(node, run, place)
        self._entries: SiteEntries | None = None
        self._is_checked = False
        """True once the slots are known to be those of the states."""
        self._orders = SharedOrders(folder / HOLDS_FILE, self._servers)
        self._beside: list[asyncio.Task[None]] = []
        """Work beside the slots, where there are several."""

    async def aclose(self) -> None:
        """End the connections to the servers, once all slots have ended."""
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)
        await self._servers.close()

    def machine(self, slot: int) -> Machine:
        """Return this machine, with the state of a slot that the node shares with the others."""
        progress = CopyProgress()

        def connected(report: Callable[[str], None]) -> AbstractAsyncContextManager[SlotTurns]:
            return self._connected(slot, report)

        return replace(
            self._machine,
            # What is written and not in the journal is gone with each node, as after a power cut.
            boot_id=lambda: str(uuid.uuid4()),
            shares_power=False,
            open_state=shared(
                connected,
                lambda folder: SlotCopy(open_store(folder, COPY), TABLES, POINT_TABLES),
                progress,
                lambda: self._running(slot),
            ),
            copy_report=progress.report,
        )

    @asynccontextmanager
    async def _running(self, slot: int) -> AsyncIterator[None]:
        """Note that this node runs a slot while the block lasts. Raises JournalRefused, OSError."""
        self._held.add(slot)
        self._share_rates()
        if slot == 0:
            self._orders.give(is_giver=True)
        elif not self._slots.is_whole:
            backoff = Backoff(0.2, 5.0, random.random)
            await self._orders.bring(lambda failures: asyncio.sleep(backoff.delay_s(failures)))
        try:
            yield
        finally:
            if slot == 0:
                self._orders.give(is_giver=False)
            self._held.discard(slot)
            self._share_rates()

    def _share_rates(self) -> None:
        # Of the site's rates each slot has a part, used or not: no node knows what others send.
        self._uplink.share = max(1, len(self._held)) / self._slots.count

    @asynccontextmanager
    async def _connected(
        self, slot: int, report: Callable[[str], None]
    ) -> AsyncIterator[SlotTurns]:
        """Connect for one turn at a slot. Raises JournalRefused, NodeStopped."""
        if not self._is_checked:
            kept = await self._servers.kept_slots(self._slots, report)
            check_slots(self._site, self._slots, kept, "the states that its nodes share")
            self._is_checked = True
        journal = await self._servers.journal(slot, report)
        yield SlotTurns(
            slot=slot,
            site=self._site_entries(),
            journal=journal,
            random_bytes=self._machine.random_bytes,
            random=random.random,
        )

    def _site_entries(self) -> SiteEntries:
        """Return the entries that all slots share, and begin what all slots need."""
        if self._entries is None:
            session_s = self._servers.cluster.zookeeper.session_s
            self._entries = SiteEntries(
                self._servers.coordination(), self._member, self._slots.count, session_s
            )
            if not self._slots.is_whole:
                probe = BrokerProbe(self.brokers(0), self._site, lambda: self.book())
                self._beside = [
                    asyncio.create_task(self._orders.run(), name="orders"),
                    asyncio.create_task(probe.run(self._entries), name="broker probe"),
                ]
        return self._entries

    def brokers(self, slot: int) -> RabbitBrokers:
        """Return the node's way to its brokers, which soon notice that the node is gone."""
        return RabbitBrokers(
            self._site,
            holder_of(self._folder, boot_id()),
            _LOCK_HEARTBEAT_S,
            slot,
            WHERE_A_JOURNAL_DECIDES,
        )
