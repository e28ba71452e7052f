"""One node of a site with a cluster: what its slots share, and what each takes from it."""

from __future__ import annotations

import asyncio
import random
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from dedup.journal.slot_copy import COPY, SlotCopy
from federation.brokers.addresses import AddressBook
from relay.cluster.broker_probe import BrokerProbe
from relay.cluster.held_slots import HeldSlots
from relay.cluster.shared_orders import SharedOrders
from relay.cluster.shared_state import shared
from relay.cluster.site_entries import ClusterMember, SiteEntries
from relay.cluster.site_servers import SharedServers, cluster_of
from relay.cluster.slot_turns import CopyProgress, SlotTurns
from relay.content.contents import MARGIN_S, Contents
from relay.lease import WHERE_A_JOURNAL_DECIDES
from relay.links.uplink import Uplink
from relay.node.brokers import RabbitBrokers, holder_of
from relay.node.machine import Machine, boot_id, open_store, this_machine
from relay.node.node import SiteNode
from relay.node.slot_record import check_slots
from relay.operator.holds import HOLDS_FILE
from relay.retry import Backoff
from relay.state.node_state import POINT_TABLES, TABLES

_LOCK_HEARTBEAT_S = 2


class NodeInCluster:
    """One node of a site with a cluster, in one process. Raises PasswordMissing, TlsUnusable,
    ServersNotKnown.
    """

    def __init__(
        self, book: AddressBook, site: str, node: str, folder: Path, uplink: Uplink
    ) -> None:
        """`book` is the first; `folder` and `uplink` are the node's, of all its slots."""
        self._book: Callable[[], AddressBook] = lambda: book
        self._site = site
        self._folder = folder
        self._machine = this_machine()
        self._slots = book.mesh.sites[site].slots
        self._held = HeldSlots(uplink, self._slots.count)
        self._servers = SharedServers(cluster_of(book, site))
        self._content = self._servers.content(lambda: self._book().mesh.retention_s + MARGIN_S)
        run, place = self._machine.random_bytes(8).hex(), holder_of(folder, boot_id()).hex()
        self._member = ClusterMember(
            node, run, place, machine=socket.gethostname(), version=metadata.version("isthmus")
        )
        self._entries: SiteEntries | None = None
        self._orders = SharedOrders(folder / HOLDS_FILE, self._servers)
        self._beside: list[asyncio.Task[None]] = []
        """Work beside the slots, where there are several."""

    def follow(self, slot: SiteNode) -> None:
        """Go by the addresses that one of the slots has at present."""
        self._book = lambda: slot.book

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
            contents=Contents(self._content, random.random),
        )

    @asynccontextmanager
    async def _running(self, slot: int) -> AsyncIterator[None]:
        """Note that this node runs a slot while the block lasts. Raises JournalRefused,
        NodeStopped, OSError.
        """
        # A node may have stood by, or still, while the slots were changed.
        await self._check_slots(lambda _: None)
        with self._held.holding(slot):
            try:
                if slot == 0:
                    self._orders.give(is_giver=True)
                elif not self._slots.is_whole:
                    backoff = Backoff(0.2, 5.0, random.random)
                    await self._orders.bring(lambda failed: asyncio.sleep(backoff.delay_s(failed)))
                yield
            finally:
                if slot == 0:
                    self._orders.give(is_giver=False)

    async def _check_slots(self, report: Callable[[str], None]) -> None:
        """Raise NodeStopped if the states are of other slots than this node's."""
        kept = await self._servers.kept_slots(self._slots, report)
        check_slots(self._site, self._slots, kept, "the states that its nodes share")

    @asynccontextmanager
    async def _connected(
        self, slot: int, report: Callable[[str], None]
    ) -> AsyncIterator[SlotTurns]:
        """Connect for one turn at a slot. Raises JournalRefused, NodeStopped."""
        await self._check_slots(report)
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
            self._entries = SiteEntries(
                self._servers.coordination(),
                self._member,
                self._slots.count,
                self._servers.cluster.zookeeper.session_s,
                self._servers.cluster.copies,
            )
            if not self._slots.is_whole:
                probe = BrokerProbe(self.brokers(0), self._site, lambda: self._book())
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
            self._member.node,
        )
