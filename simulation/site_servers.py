"""Ensemble and journals of a simulated site of several nodes, and one process's way to them."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import copy_context
from pathlib import Path

from dedup.journal.journal import JournalAway, JournalRow
from dedup.journal.memory_journal import JournalTrouble, MemoryJournal, SlotRows
from dedup.journal.slot_copy import SlotCopy
from dedup.journal.snapshot_keeper import SnapshotPace
from relay.cluster.held_slots import HeldSlots
from relay.cluster.memory_coordination import MemoryCoordination, MemoryEnsemble
from relay.cluster.shared_state import shared
from relay.cluster.site_entries import ClusterMember, SiteEntries
from relay.cluster.slot_turns import CopyProgress, SlotTurns
from relay.content.content_store import ContentAway
from relay.content.contents import Contents
from relay.content.memory_content import KeptContent, MemoryContent
from relay.links.uplink import Uplink
from relay.node.machine import OpenState

SESSION_S = 2.0
"""Time after which the ensemble gives up the session of a silent process."""
PACES = (SnapshotPace(rows=15, look_s=1.0), SnapshotPace())
"""Snapshots so often that most copies that were away begin anew from one, and none."""
_STEP_S = (0.001, 0.008)
"""Time of half a call: from, to."""


class SiteServers:
    """Ensemble, and a journal of each of so many `slots`, which outlive all nodes of their site.
    `snapshots` is the pace of the journals' snapshots; so many `copies` of each slot are kept.
    """

    def __init__(self, snapshots: SnapshotPace, slots: int = 1, copies: int = 1) -> None:
        self.snapshots = snapshots
        self.copies = copies
        self.ensemble = MemoryEnsemble()
        self.rows = tuple(SlotRows() for _ in range(slots))
        """Journals' rows, by slot."""
        self.journal_away = False
        """True while no quorum of the journals answers; calls under way may have been carried out.
        """
        self.answers_lost = 0.0
        """Share of the journals' calls that fail, carried out or not."""
        self.content = KeptContent(asyncio.get_running_loop().time)
        """Contents of all slots' logs."""
        self.slower = 1.0
        """Factor of the time of the journals' calls."""

    def holder(self, slot: int = 0) -> str | None:
        """Return the name of the node whose entry says that it should run a slot, if any does."""
        entry = self.ensemble.entries.get(f"slots/{slot}/owner")
        return None if entry is None else str(json.loads(entry[0])["node"])


class ServerAccess:
    """Way of one process, `member`, to the servers, by one session for all slots; to be closed at
    the end. `uplink` is the process's. `on_step` is called amid each call.
    """

    def __init__(
        self,
        servers: SiteServers,
        member: ClusterMember,
        chance: random.Random,
        uplink: Uplink,
        on_step: Callable[[], None],
    ) -> None:
        self._servers = servers
        self._held = HeldSlots(uplink, len(servers.rows))
        self._member = member
        self._chance = chance
        self._content_chance = random.Random(f"{member.node} {member.run}")
        self._on_step = on_step
        self._troubles = tuple(JournalTrouble() for _ in servers.rows)
        """Troubles of the way to each slot's journal."""
        self._coordination: MemoryCoordination | None = None
        self._site: SiteEntries | None = None
        self._is_dead = False
        self._outside = copy_context()
        """Context that does not freeze with the process."""

    def state(
        self, slot: int, open_copy: Callable[[Path], SlotCopy], progress: CopyProgress
    ) -> OpenState:
        """Return the way to a slot's state, which the site's nodes share."""
        return shared(
            lambda _: self._connected(slot), open_copy, progress, lambda: self._running(slot)
        )

    @asynccontextmanager
    async def _running(self, slot: int) -> AsyncIterator[None]:
        with self._held.holding(slot):
            yield

    @asynccontextmanager
    async def _connected(self, slot: int) -> AsyncIterator[SlotTurns]:
        rows, trouble = self._servers.rows[slot], self._troubles[slot]
        yield SlotTurns(
            slot=slot,
            site=self._entries(),
            journal=MemoryJournal(rows, trouble, self._half_of_the_journal),
            random_bytes=self._chance.randbytes,
            random=self._chance.random,
            snapshots=self._servers.snapshots,
        )

    def contents(self) -> Contents:
        """Return the contents of one slot's log."""
        store = MemoryContent(self._servers.content, self._half_of_content)
        return Contents(store, self._content_chance.random)

    def _entries(self) -> SiteEntries:
        if self._site is None:
            self._coordination = MemoryCoordination(self._servers.ensemble, self._half_a_call)
            slots = len(self._servers.rows)
            copies = self._servers.copies
            self._site = SiteEntries(self._coordination, self._member, slots, SESSION_S, copies)
        return self._site

    async def close(self) -> None:
        """End the session, as a process that ends in order."""
        if self._coordination is not None:
            await self._coordination.close()

    async def _half_a_call(self) -> None:
        self._on_step()
        await asyncio.sleep(self._chance.uniform(*_STEP_S))

    async def _half_of_the_journal(self) -> None:
        await self._half_of_cassandra(self._chance)

    async def _half_of_cassandra(self, chance: random.Random) -> None:
        self._on_step()
        await asyncio.sleep(self._servers.slower * chance.uniform(*_STEP_S))
        servers = self._servers
        if self._is_dead or servers.journal_away or chance.random() < servers.answers_lost:
            raise JournalAway("no answer")

    async def _half_of_content(self) -> None:
        try:
            await self._half_of_cassandra(self._content_chance)
        except JournalAway as error:
            raise ContentAway(str(error)) from error

    # Faults

    def die(self) -> None:
        """Carry out nothing more, as for a killed process, whose session lasts a while."""
        self._is_dead = True
        session = self._coordination
        if session is not None:
            session.vanish()
            self._expire_later(session)

    def lose_session(self) -> None:
        """Expire the session; the process gets a new one as soon as the ensemble is there."""
        if self._coordination is not None:
            self._coordination.expire()

    def cut_off(self) -> Callable[[], None]:
        """Cut the process off from the ensemble, which gives its session up in time. Return the
        call that mends the line.
        """
        session = self._coordination
        if session is None:
            return lambda: None
        session.away = True
        giving_up = self._expire_later(session)

        def mend() -> None:
            giving_up.cancel()
            if not self._is_dead:
                session.away = False

        return mend

    def _expire_later(self, session: MemoryCoordination) -> asyncio.TimerHandle:
        loop = asyncio.get_running_loop()
        return loop.call_later(SESSION_S, session.expire, context=self._outside)

    def hold_rows(self) -> Callable[[], None]:
        """Keep rows of all journals on their way from now on. Return the call that lets them land,
        and the later ones pass.
        """
        held: list[list[JournalRow]] = [[] for _ in self._troubles]
        for trouble, late in zip(self._troubles, held, strict=True):
            trouble.late = late

        def land() -> None:
            for rows, trouble, late in zip(self._servers.rows, self._troubles, held, strict=True):
                rows.land(late)
                late.clear()
                if trouble.late is late:
                    trouble.late = None

        return land
