"""Connections of a process to its site's Cassandra and ZooKeeper."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from dedup.journal.cassandra_session import CassandraAccess, JournalSession
from dedup.journal.journal import Journal, JournalAway
from dedup.journal.slot_taking import until_known
from federation.brokers.addresses import AddressBook, context_of
from federation.brokers.broker_uri import parse_host_port
from federation.brokers.credentials import resolve_password
from federation.mesh import EnsemblePlace, JournalPlace
from federation.slots import ONE_SLOT, SlotMap
from relay.cluster.coordination import Coordination
from relay.cluster.zookeeper import ZookeeperAccess, ZookeeperCoordination
from relay.content.cassandra_content import CassandraContent
from relay.content.content_store import ContentStore
from relay.node.slot_record import slots_as_text, slots_of_text
from relay.node.start import NodeStopped
from relay.retry import Backoff

T = TypeVar("T")

_AGAIN_S = 0.5
_SLOTS = "slots"
"""Name of the fact that says which slots the states in a keyspace are of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteCluster:
    """Ways to the servers that the nodes of one site share."""

    cassandra: CassandraAccess
    zookeeper: ZookeeperAccess
    copies: int
    """Number of nodes that keep a copy of a slot's state, beside the slot's owner."""


def _recording(slots: SlotMap) -> Callable[[JournalSession], bool]:
    return lambda session: session.replace_fact(_SLOTS, None, slots_as_text(slots))


def _slots_of(record: str) -> SlotMap:
    try:
        return slots_of_text(record)
    except (ValueError, KeyError, TypeError) as error:
        raise NodeStopped(
            f"what the keyspace has of `{_SLOTS}` in table `site` cannot be read: {error!r}; put it"
            " back from a copy"
        ) from error


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

    def content(self, life_s: Callable[[], float]) -> ContentStore:
        """Return the site's content store, for contents that live for about `life_s`."""
        return CassandraContent(self._connected, life_s)

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

    async def write_fact(self, name: str, after: str, report: Callable[[str], None]) -> None:
        """Write a fact, once Cassandra can be reached. Raises JournalRefused."""

        def replace(session: JournalSession) -> bool:
            before = session.fact(name)
            return before == after or session.replace_fact(name, before, after)

        while not await self._asked(replace, report):
            pass  # another has written it meanwhile

    async def kept_slots(self, slots: SlotMap, report: Callable[[str], None]) -> SlotMap:
        """Return the slots that the states in the keyspace are of, which are these `slots` if there
        is none. Raises as `journal`; NodeStopped if the record is damaged.
        """
        while True:
            found = await self.recorded_slots(report)
            if found is not None:
                return found
            # A state without a record is of one slot.
            found = ONE_SLOT if await self.has_state(report) else slots
            await self._asked(_recording(found), report)

    async def recorded_slots(self, report: Callable[[str], None]) -> SlotMap | None:
        """Return the recorded slots, None where nobody has recorded any. Raises as `kept_slots`."""
        kept = await self._asked(lambda session: session.fact(_SLOTS), report)
        return None if kept is None else _slots_of(kept)

    async def record_slots(
        self, before: SlotMap, after: SlotMap, report: Callable[[str], None]
    ) -> None:
        """Write down that the states are of other slots. Raises JournalRefused; NodeStopped if the
        record is neither the one before nor the one to write.
        """
        recorded = await self.recorded_slots(report)
        if recorded not in (before, after, None):
            raise NodeStopped(f"the keyspace has {recorded}, not {before}: run this again")
        await self.write_fact(_SLOTS, slots_as_text(after), report)

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
        copies=group.copies,
    )
