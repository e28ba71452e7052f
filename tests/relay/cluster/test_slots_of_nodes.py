"""Nodes that share the slots of a site: slots even out, rest, and follow who is there."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

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
from relay.node.machine import GivingRefused
from tests.virtual_time import in_virtual_time, let_pass

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


@in_virtual_time
async def test_nodes_that_start_together_share_the_slots_without_a_move() -> None:
    async with running("a", "b", "c", for_s=SESSION_S + 3) as site:
        assert site.counts == [2, 3, 3]
        before = site.shares
        await let_pass(120)
        assert site.shares == before
        assert site.taken == SLOTS


@in_virtual_time
async def test_slots_even_out_one_by_one_as_nodes_come_and_then_rest() -> None:
    async with running("a", for_s=SESSION_S + 1) as site:
        assert site.counts == [SLOTS]
        site.start("b")
        await let_pass(60)
        assert site.counts == [4, 4]
        assert site.taken == SLOTS + 4
        site.start("c")
        await let_pass(60)
        assert site.counts == [2, 3, 3]
        assert site.taken == SLOTS + 4 + 2
        await let_pass(100)
        assert site.taken == SLOTS + 4 + 2


@in_virtual_time
async def test_the_slots_of_a_dead_node_are_shared_out_when_its_session_ends() -> None:
    async with running("a", "b", "c") as site:
        taken = site.taken
        lost = len(site.nodes["b"].held)
        await site.nodes["b"].kill()
        await let_pass(SESSION_S + 0.5)
        assert site.counts == [4, 4]
        assert site.taken == taken + lost


@in_virtual_time
async def test_the_slots_of_a_node_that_ends_in_order_are_taken_at_once() -> None:
    async with running("a", "b", "c") as site:
        await site.nodes["b"].stop()
        await let_pass(0.5)
        assert site.counts == [4, 4]
        await site.nodes["a"].stop()
        await let_pass(0.5)
        assert site.counts == [SLOTS]


@in_virtual_time
async def test_nothing_moves_when_all_sessions_expire_at_once() -> None:
    async with running("a", "b", "c") as site:
        before, taken = site.shares, site.taken
        for _ in range(5):
            site.ensemble.expire_all()
            await let_pass(7)
        assert (site.shares, site.taken) == (before, taken)


@in_virtual_time
async def test_an_operator_moves_a_slot_which_then_stays_until_that_node_is_gone() -> None:
    async with running("a", "b") as site:
        moved = list(site.nodes["a"].held)[:2]
        for slot in moved:
            await site.nodes["a"].held[slot]("b")
            await let_pass(1)
        assert site.counts == [2, 6]
        await let_pass(60)
        # Of those that were not moved by hand some may go back.
        assert site.counts == [4, 4]
        assert set(moved) <= set(site.nodes["b"].held)
        await site.nodes["b"].stop()
        await let_pass(1)
        assert site.counts == [SLOTS]


@in_virtual_time
async def test_a_slot_goes_to_no_node_that_is_not_there_or_not_up_to_date() -> None:
    async with running("a", for_s=5) as site:
        give = site.nodes["a"].held[0]
        with pytest.raises(GivingRefused, match="there is no node b; the site has a now"):
            await give("b")
        with pytest.raises(GivingRefused, match="a has slot 0"):
            await give("a")
        site.start("b")
        for journal in site.nodes["b"].journals:
            journal.trouble.away = True
        await let_pass(5)
        with pytest.raises(GivingRefused, match="b has not read the journal of slot 0 to its end"):
            await give("b")
        site.ensemble.away = True
        with pytest.raises(GivingRefused, match="nobody knows which nodes are there"):
            await give("b")
        await let_pass(60)
        assert site.shares == {"a": list(range(SLOTS)), "b": []}
        site.ensemble.away = False


async def in_other_hands(site: Site, node: str, seconds: float) -> None:
    """Let time pass in which others have all slots, but for a takeover, and none moves."""
    await let_pass(4 * SESSION_S)
    taken = site.taken
    for _ in range(int(seconds)):
        await let_pass(1)
        held = sorted(slot for name, slots in site.shares.items() if name != node for slot in slots)
        assert held == list(range(SLOTS)), site.shares
    assert site.taken == taken


@in_virtual_time
async def test_a_node_that_has_lost_the_journal_gets_no_slots() -> None:
    async with running("a", "b") as site:
        for journal in site.nodes["b"].journals:
            journal.trouble.away = True
        site.start("c")
        await let_pass(60)
        await site.nodes["b"].stop()
        site.start("b")
        for journal in site.nodes["b"].journals:
            journal.trouble.away = True
        await in_other_hands(site, "b", 120)
        await site.nodes["a"].kill()
        await in_other_hands(site, "b", 120)
        for journal in site.nodes["b"].journals:
            journal.trouble.away = False
        await let_pass(60)
        assert site.counts == [4, 4]


@in_virtual_time
async def test_a_node_that_has_lost_the_journal_of_one_slot_is_given_none() -> None:
    async with running("a", "b", "c", copies=1) as site:
        followed = next(slot for slot in range(SLOTS) if "c" in site.copies_of(slot))
        site.nodes["c"].journals[followed].trouble.away = True
        await let_pass(30)
        assert "unfit/c" in site.ensemble.entries
        await let_pass(0.3)
        for _ in range(20):
            await let_pass(1.1)
            assert "unfit/c" in site.ensemble.entries
        site.nodes["c"].journals[followed].trouble.away = False
        await let_pass(30)
        assert "unfit/c" not in site.ensemble.entries


@in_virtual_time
async def test_a_node_that_does_not_reach_the_broker_gets_no_slots_and_gives_its_own_away() -> None:
    async with running("a", "b", "c") as site:
        await site.nodes["b"].lose_broker()
        await let_pass(60)
        await in_other_hands(site, "b", 60)
        # Where nobody reaches it, who has the slots matters no more.
        await asyncio.gather(site.nodes["a"].lose_broker(), site.nodes["c"].lose_broker())
        before, taken = site.shares, site.taken
        await let_pass(120)
        assert (site.shares, site.taken) == (before, taken)
        for node in site.nodes.values():
            node.find_broker()
        await let_pass(60)
        assert site.counts == [2, 3, 3]


@in_virtual_time
async def test_a_slot_that_an_operator_placed_stays_so_when_sessions_end() -> None:
    async with running("a", "b") as site:
        moved = list(site.nodes["a"].held)[:2]
        for slot in moved:
            await site.nodes["a"].held[slot]("b")
            await let_pass(1)
        await let_pass(60)
        site.ensemble.expire_all()
        await let_pass(10)
        site.start("c")
        await let_pass(60)
        assert site.counts == [2, 3, 3]
        assert set(moved) <= set(site.nodes["b"].held)


@in_virtual_time
async def test_a_node_whose_slots_end_slowly_is_given_no_other() -> None:
    async with running("a", "b", "c") as site:
        node = site.nodes["b"]
        node.ends_within_s = 12.0
        slow = asyncio.create_task(node.stop())
        await let_pass(30)
        await slow
        await let_pass(1)
        assert site.counts == [4, 4]


@in_virtual_time
@pytest.mark.parametrize("seed", range(20))
async def test_all_slots_are_held_once_however_nodes_come_and_go(seed: int) -> None:
    site, chance = Site(copies=1 + seed % 2), random.Random(seed)
    names = list("abcd")
    site.start("a")
    for _ in range(12):
        await let_pass(chance.uniform(0, 8))
        absent = [name for name in names if name not in site.nodes]
        what = chance.choice(("start", "stop", "kill", "expire"))
        if what == "start" or len(site.nodes) < 2:
            site.start(*absent[:1])
        elif what == "expire":
            site.ensemble.expire_all()
        else:
            node = site.nodes[chance.choice(list(site.nodes))]
            await (node.stop() if what == "stop" else node.kill())
    await let_pass(90)
    counts = site.counts
    assert max(counts) - min(counts) <= 1
    taken = site.taken
    await let_pass(60)
    assert site.taken == taken, "they rest"
    await site.stop()


@in_virtual_time
async def test_slots_move_until_the_nodes_handle_as_much_and_then_rest() -> None:
    async with running("a", "b") as site:
        site.handle(dict.fromkeys(range(SLOTS), 1000) | {0: 6000})
        await let_pass(300)
        # A slot more counts as a thousand messages a second.
        assert site.loads == [5000, 8000]
        assert site.counts == [3, 5]
        taken = site.taken
        await let_pass(600)
        assert site.taken == taken


@in_virtual_time
async def test_loads_that_waver_move_nothing() -> None:
    async with running("a", "b", "c") as site:
        chance = random.Random(1)
        site.handle(dict.fromkeys(range(SLOTS), 2000))
        await let_pass(120)
        taken = site.taken
        for _ in range(120):
            site.handle({slot: chance.randint(1700, 2300) for slot in range(SLOTS)})
            await let_pass(5)
        assert site.taken == taken


@in_virtual_time
async def test_a_slot_that_is_busy_every_other_minute_stays_where_it_is() -> None:
    async with running("a", "b") as site:
        site.handle({0: 6000})
        await let_pass(300)
        taken = site.taken
        for turn in range(10):
            site.handle({0: 1000 if turn % 2 else 6000})
            await let_pass(120)
        assert site.taken == taken


@in_virtual_time
async def test_a_node_whose_slots_end_slowly_gives_one_at_a_time() -> None:
    async with running("a", "b", for_s=60) as site:
        node = next(node for node in site.nodes.values() if 0 in node.held)
        node.ends_within_s = 12.0
        site.handle({0: 20_000})
        taken = site.taken
        await let_pass(600)
        assert sorted(map(len, site.shares.values())) == [1, SLOTS - 1]
        assert site.taken == taken + 3


@in_virtual_time
async def test_a_node_that_is_back_later_than_the_others_finds_its_slots_as_they_were() -> None:
    async with running("a", "b") as site:
        site.handle({0: 9000})
        await let_pass(300)
        before, taken = site.shares, site.taken
        busy = next(node for node in site.nodes.values() if 0 in node.held)
        for _ in range(3):
            busy.coordination.away = True
            site.ensemble.expire_all()
            await let_pass(1.5)
            busy.coordination.away = False
            await let_pass(70)
        assert (site.shares, site.taken) == (before, taken)


@in_virtual_time
async def test_what_slots_handle_is_known_after_all_sessions_expired() -> None:
    async with running("a", "b") as site:
        site.handle({0: 9000})
        await let_pass(300)
        before, taken = site.shares, site.taken
        assert sorted(map(len, before.values())) == [1, SLOTS - 1]
        for _ in range(3):
            site.ensemble.expire_all()
            await let_pass(70)
        site.start("c")
        await let_pass(200)
        assert sorted(map(len, site.shares.values())) == [1, 3, 4]
        assert site.taken <= taken + 4


@in_virtual_time
async def test_few_nodes_follow_each_slot_and_slots_even_out_all_the_same() -> None:
    async with running("a", "b", "c", "d", for_s=60, copies=1) as site:
        assert site.counts == [2, 2, 2, 2]
        assert site.copies_of_each == [1] * SLOTS
        site.start("e", "f", "g", "h")
        await let_pass(300)
        assert site.counts == [1] * SLOTS
        taken = site.taken
        await let_pass(60)
        assert site.copies_of_each == [1] * SLOTS
        assert site.taken == taken


@in_virtual_time
async def test_the_slots_of_a_dead_node_go_to_those_that_have_copies_and_others_begin_some() -> (
    None
):
    async with running("a", "b", "c", "d", for_s=60, copies=1) as site:
        copies = {slot: site.copies_of(slot) for slot in site.nodes["b"].held}
        await site.nodes["b"].kill()
        await let_pass(SESSION_S + 0.5)
        for slot, nodes in copies.items():
            assert {name for name, held in site.shares.items() if slot in held} == nodes
        await let_pass(90)
        assert site.counts == [2, 3, 3]
        assert site.copies_of_each == [1] * SLOTS


@in_virtual_time
async def test_a_slot_leaves_its_owner_and_the_nodes_with_copies_that_all_lost_the_broker() -> None:
    async with running("a", "b", "c", "d", "e", "f", for_s=60) as site:
        slot, *_ = site.nodes["f"].held
        lost = {"f", *site.copies_of(slot)}
        assert len(lost) == 3
        await asyncio.gather(*(site.nodes[name].lose_broker() for name in lost))
        await let_pass(180)
        assert all(not site.shares[name] for name in lost), site.shares
        assert len(site.counts) == 6


async def order_to_a_node_without_a_copy(site: Site) -> tuple[int, str]:
    """Order a slot of `a` to a node that does not follow its journal; return both."""
    slot, give = next(iter(site.nodes["a"].held.items()))
    to = next(name for name in "bcd" if name not in site.copies_of(slot))
    with pytest.raises(GivingRefused, match="it gets the slot as soon as it has, within 10 min"):
        await give(to)
    return slot, to


@in_virtual_time
async def test_a_node_that_an_operator_gives_a_slot_reads_its_journal_first() -> None:
    async with running("a", "b", "c", "d", for_s=60, copies=1) as site:
        slot, to = await order_to_a_node_without_a_copy(site)
        await let_pass(90)
        assert slot in site.nodes[to].held
        assert site.counts == [2, 2, 2, 2]
        assert site.copies_of_each == [1] * SLOTS


@in_virtual_time
async def test_a_slot_whose_owner_ends_goes_to_a_copy_and_not_to_who_still_reads() -> None:
    async with running("a", "b", "c", "d", for_s=60, copies=1) as site:
        for node in site.nodes.values():
            for journal in node.journals if node.name != "a" else ():
                journal.trouble.away = True  # nobody reads on
        slot, to = await order_to_a_node_without_a_copy(site)
        (copy,) = site.copies_of(slot) or {""}
        for journal in (journal for node in site.nodes.values() for journal in node.journals):
            journal.trouble.away = False
        await site.nodes["a"].stop()
        await let_pass(1)
        assert slot in site.nodes[copy].held
        assert slot not in site.nodes[to].held


@in_virtual_time
async def test_who_follows_what_stays_while_the_ensemble_is_away() -> None:
    async with running("a", "b", "c", "d", for_s=60, copies=1) as site:
        for node in site.nodes.values():
            node.coordination.away = True  # each connection breaks
        await let_pass(5)
        before = {name: [one.reads for one in node.journals] for name, node in site.nodes.items()}
        await let_pass(60)
        read = {
            (slot, name)
            for name, node in site.nodes.items()
            for slot, journal in enumerate(node.journals)
            if journal.reads > before[name][slot]
        }
        for node in site.nodes.values():
            node.coordination.away = False
        await let_pass(30)
        assert read == {(slot, name) for slot in range(SLOTS) for name in site.copies_of(slot)}
