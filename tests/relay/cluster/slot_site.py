"""A site of eight slots in virtual time, with nodes that share them over real turns and entries."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from dedup.journal.journal import JournalRow, SlotGone
from dedup.journal.memory_journal import MemoryJournal, SlotRows
from dedup.journal.slot_copy import COPY, SlotCopy
from dedup.memory_store import MemoryStore
from dedup.store import Changes
from relay.cluster.coordination import CoordinationAway
from relay.cluster.memory_coordination import MemoryCoordination, MemoryEnsemble
from relay.cluster.shared_state import shared
from relay.cluster.site_entries import ClusterMember, SiteEntries
from relay.cluster.slot_turns import CopyProgress, SlotTurns
from tests.virtual_time import let_pass

TABLES = ("rows",)
SESSION_S = 2.0
SLOTS = 8
GiveTo = Callable[[str], Awaitable[None]]


class Site:
    """Site whose slots several nodes share: its servers, and its nodes."""

    def __init__(self, copies: int) -> None:
        self.copies = copies
        self.ensemble = MemoryEnsemble()
        self.slots = [SlotRows() for _ in range(SLOTS)]
        self.nodes: dict[str, Node] = {}
        self.lives = 0
        self.taken = 0
        """Number of times that a node has taken a slot."""
        self.rates = dict.fromkeys(range(SLOTS), 0)
        """Messages a second that slots handle, from `_rates_at` on."""
        self._rates_at, self._handled = 0.0, dict.fromkeys(range(SLOTS), 0)

    def start(self, *names: str) -> None:
        for name in names:
            self.nodes[name] = Node(self, name)

    @property
    def shares(self) -> dict[str, list[int]]:
        """The slots of each node."""
        return {name: sorted(node.held) for name, node in self.nodes.items()}

    def handled(self, slot: int) -> int:
        """Count the messages that a slot has handled."""
        passed_s = asyncio.get_running_loop().time() - self._rates_at
        return self._handled[slot] + int(self.rates[slot] * passed_s)

    def handle(self, rates: Mapping[int, int]) -> None:
        """Have slots handle so many messages a second from now on, and all others none."""
        self._handled = {slot: self.handled(slot) for slot in range(SLOTS)}
        self._rates_at = asyncio.get_running_loop().time()
        self.rates = dict.fromkeys(range(SLOTS), 0) | dict(rates)

    @property
    def loads(self) -> list[int]:
        """Messages a second of the nodes."""
        return sorted(sum(self.rates[slot] for slot in held) for held in self.shares.values())

    def copies_of(self, slot: int) -> set[str]:
        """Return the nodes whose copies of a slot are at the journal's end."""
        inside = f"slots/{slot}/copies/"
        return {path.removeprefix(inside) for path in self.ensemble.entries if inside in path}

    @property
    def copies_of_each(self) -> list[int]:
        """Number of the copies of each slot that are at the journal's end."""
        return [len(self.copies_of(slot)) for slot in range(SLOTS)]

    @property
    def counts(self) -> list[int]:
        """Numbers of slots of the nodes, if all slots are held once."""
        held = sorted(slot for slots in self.shares.values() for slot in slots)
        assert held == list(range(SLOTS)), self.shares
        return sorted(map(len, self.shares.values()))

    async def stop(self) -> None:
        for name in list(self.nodes):
            await self.nodes[name].stop()


class CountingJournal(MemoryJournal):
    """Journal that counts how often somebody reads its rows."""

    reads = 0

    def rows(self, after: int) -> AsyncIterator[JournalRow]:
        self.reads += 1
        return super().rows(after)


class Node:
    """A node that runs in turn whatever slots it gets."""

    def __init__(self, site: Site, name: str) -> None:
        self.name = name
        self.held: dict[int, GiveTo] = {}
        self.coordination = MemoryCoordination(site.ensemble)
        site.lives += 1
        member = ClusterMember(name, f"life {site.lives}", name)
        self._entries = SiteEntries(self.coordination, member, SLOTS, SESSION_S, site.copies)
        self._site = site
        self.journals = [CountingJournal(rows) for rows in site.slots]
        self.ends_within_s = 0.0
        """Time for the end of each second slot."""
        self._reaches_broker = True
        self._entries.look_if_fit = self._look
        self._tasks = [asyncio.create_task(self._live(slot)) for slot in range(SLOTS)]
        self._tasks.append(asyncio.create_task(self._show_fitness()))

    async def _live(self, slot: int) -> None:
        @asynccontextmanager
        async def connect(_: Callable[[str], None]) -> AsyncIterator[SlotTurns]:
            yield SlotTurns(
                slot=slot,
                site=self._entries,
                journal=self.journals[slot],
                random_bytes=random.Random(f"{self.name}{slot}").randbytes,
                random=random.Random(f"{self.name}{slot}").random,
            )

        store = MemoryStore((*TABLES, COPY))

        def copy(_: Path) -> SlotCopy:
            nonlocal store
            store = store.reopen()
            return SlotCopy(store, TABLES)

        open_state = shared(connect, copy, CopyProgress())
        while True:
            try:
                async with open_state(Path(), lambda reason: None) as held:
                    assert held.give_to is not None
                    self._site.taken += 1
                    self.held[slot] = held.give_to
                    over = asyncio.Event()
                    holding = asyncio.create_task(
                        held.hold(over.set, lambda: self._site.handled(slot))
                    )
                    ending = asyncio.create_task(over.wait())
                    try:
                        held.store.write(Changes())
                        await asyncio.wait({holding, ending}, return_when="FIRST_COMPLETED")
                        if holding.done():
                            holding.result()
                    finally:
                        if self.ends_within_s:
                            await let_pass(slot % 2 * self.ends_within_s)
                        del self.held[slot]
                        holding.cancel()
                        ending.cancel()
            except SlotGone:
                continue

    async def _show_fitness(self) -> None:
        """Show the others every five seconds whether this node is fit, as the broker's probe."""
        while True:
            with contextlib.suppress(CoordinationAway):
                await self._entries.show_fitness()
            await let_pass(5)

    async def lose_broker(self) -> None:
        self._reaches_broker = self._entries.is_fit = False
        await let_pass(15)
        self._entries.is_cut_off = True

    def find_broker(self) -> None:
        self._reaches_broker = self._entries.is_fit = True
        self._entries.is_cut_off = False

    async def _look(self) -> bool:
        return self._reaches_broker

    async def stop(self) -> None:
        """End in order."""
        await self._end()
        del self._site.nodes[self.name]
        await self.coordination.close()

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def kill(self) -> None:
        """End at once; the session lasts a while."""
        del self._site.nodes[self.name]
        self.coordination.vanish()
        await self._end()
        asyncio.get_running_loop().call_later(SESSION_S, self.coordination.expire)


@asynccontextmanager
async def running(*names: str, for_s: float = 20.0, copies: int = 2) -> AsyncIterator[Site]:
    """Run a site of these nodes, for some time before the block; its nodes end with the block."""
    site = Site(copies)
    site.start(*names)
    await let_pass(for_s)
    yield site
    await site.stop()
