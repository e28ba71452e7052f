"""Turns of a site's nodes at their slot: who takes the slot, when, and who has to let go."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dedup.journal.journal import JournalSnapshot, Owner, Ownership, SlotFenced, SlotGone
from dedup.journal.memory_journal import MemoryJournal, SlotRows
from dedup.journal.slot_copy import COPY, SlotCopy
from dedup.memory_store import MemoryStore
from dedup.store import Changes, Store
from relay.cluster.coordination import CoordinationEntry
from relay.cluster.memory_coordination import MemoryCoordination, MemoryEnsemble
from relay.cluster.shared_state import shared
from relay.cluster.site_entries import ClusterMember, SiteEntries
from relay.cluster.slot_turns import LOOK_BACK_EVERY_S, CopyProgress, SlotTurns
from relay.node.start import NodeStopped
from tests.virtual_time import in_virtual_time, let_pass

TABLES = ("rows",)
SESSION_S = 2.0


class Site:
    """Servers that the nodes of a site share."""

    def __init__(self) -> None:
        self.ensemble = MemoryEnsemble()
        self.slot = SlotRows()


class Node:
    """A node that follows, takes the slot, and writes a row of its own every tenth of a second."""

    def __init__(self, site: Site, name: str, place: str = "", run: str = "") -> None:
        self.name = name
        self.local = MemoryStore((*TABLES, COPY))
        self.turns = 0
        """Times at which the node has had the slot."""
        self.is_owner = False
        self.reasons: list[str] = []
        self.fenced: list[SlotFenced] = []
        self.written: list[bytes] = []
        self.progress = CopyProgress()
        self._site = site
        self._member = ClusterMember(name, run or f"run of {name}", place or f"place of {name}")
        self.journal = MemoryJournal(site.slot)
        self.coordination: MemoryCoordination | None = None
        self._frozen = asyncio.Event()
        self._frozen.set()
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def _connect(self, _: Callable[[str], None]) -> AsyncIterator[SlotTurns]:
        self.coordination = MemoryCoordination(self._site.ensemble)
        try:
            yield SlotTurns(
                slot=0,
                site=SiteEntries(self.coordination, self._member, 1, SESSION_S, copies=2),
                journal=self.journal,
                random_bytes=random.Random(self.name).randbytes,
                random=random.Random(self.name).random,
            )
        finally:
            await self.coordination.close()

    def _copy(self, _: Path) -> SlotCopy:
        self.local = self.local.reopen()
        return SlotCopy(self.local, TABLES)

    async def _live(self) -> None:
        open_state = shared(self._connect, self._copy, self.progress)
        while True:
            try:
                async with open_state(Path(), self.reasons.append) as held:
                    self.turns += 1
                    self.is_owner = True
                    holding = asyncio.create_task(held.hold(lambda: None, lambda: 0))
                    try:
                        while not holding.done():
                            await self._write(held.store)
                            await asyncio.wait({holding}, timeout=0.1)
                        holding.result()
                    finally:
                        self.is_owner = False
                        holding.cancel()
            except SlotFenced as error:
                self.fenced.append(error)
            except SlotGone as error:
                self.reasons.append(str(error))

    async def _write(self, store: Store) -> None:
        await self._frozen.wait()
        key = f"{self.name} {len(self.written)}".encode()
        changes = Changes()
        changes.put("rows", key, b"")
        store.write(changes)
        await store.synced()
        self.written.append(key)

    def start(self) -> Node:
        self._task = asyncio.create_task(self._live(), name=self.name)
        return self

    async def stop(self) -> None:
        """End in order."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.result()

    async def ended(self) -> BaseException | None:
        assert self._task is not None
        await asyncio.wait({self._task})
        return self._task.exception()

    def freeze(self) -> None:
        """Do nothing more, as a paused process; the session is lost, if nobody thaws it in time."""
        self._frozen.clear()

    def thaw(self) -> None:
        self._frozen.set()

    @property
    def last_row(self) -> int:
        return SlotCopy(self.local, TABLES).last_row

    @property
    def keys(self) -> set[bytes]:
        return {key for key, _ in self.local.scan("rows")}


async def becomes_owner(node: Node, within_s: float) -> None:
    async with asyncio.timeout(within_s):
        while not node.is_owner:
            await let_pass(0.01)


@in_virtual_time
async def test_the_first_node_takes_the_slot_at_once_and_the_other_follows() -> None:
    site = Site()
    one = Node(site, "paris-a").start()
    await becomes_owner(one, 0.5)
    other = Node(site, "paris-b").start()
    await let_pass(20)
    assert one.is_owner
    assert not other.is_owner
    assert other.reasons[-1] == "standing by: paris-a runs the site"
    assert len(one.written) > 100
    assert set(one.written[:-10]) <= other.keys
    await one.stop()
    await other.stop()


@in_virtual_time
async def test_a_node_that_ends_in_order_is_followed_at_once() -> None:
    site = Site()
    one = Node(site, "paris-a").start()
    await becomes_owner(one, 0.5)
    other = Node(site, "paris-b").start()
    await let_pass(10)
    await one.stop()
    await becomes_owner(other, 0.5)
    assert set(one.written) <= other.keys
    await other.stop()


@in_virtual_time
async def test_a_frozen_node_is_replaced_and_refused_when_it_wakes() -> None:
    site = Site()
    one = Node(site, "paris-a").start()
    await becomes_owner(one, 0.5)
    other = Node(site, "paris-b").start()
    await let_pass(10)
    one.freeze()
    assert one.coordination is not None
    one.coordination.freeze()
    await becomes_owner(other, 0.5)
    await let_pass(10)
    assert one.is_owner, "the frozen node does not know yet"
    one.coordination.thaw()
    one.thaw()
    await let_pass(2)
    assert not one.is_owner
    assert other.is_owner
    assert one.fenced[-1].now is not None
    assert one.fenced[-1].now.node == "paris-b"
    assert set(one.written) <= other.keys
    await let_pass(5)
    assert set(other.written[:-10]) <= one.keys, "the node follows now"
    await one.stop()
    await other.stop()


@in_virtual_time
async def test_a_node_that_stands_by_knows_how_far_its_copy_is() -> None:
    site = Site()
    one = Node(site, "paris-a").start()
    await becomes_owner(one, 0.5)
    other = Node(site, "paris-b")
    assert other.progress.report() == {"row": None, "followed_s": None}
    other.start()
    await let_pass(10)
    seen = other.progress.report()
    assert seen["row"] == other.last_row > 50
    assert seen["followed_s"] < 0.5
    other.journal.trouble.away = True
    await let_pass(60)
    seen = other.progress.report()
    assert seen["row"] == other.last_row < one.last_row - 500
    assert 59 < seen["followed_s"] < 61
    await one.stop()
    await other.stop()


@in_virtual_time
async def test_no_slot_moves_when_all_sessions_expire_at_once() -> None:
    site = Site()
    one, other = Node(site, "paris-a").start(), Node(site, "paris-b")
    await becomes_owner(one, 0.5)
    other.start()
    for _ in range(5):
        await let_pass(10)
        site.ensemble.expire_all()
    await let_pass(10)
    assert (one.turns, other.turns) == (1, 0)
    await one.stop()
    await other.stop()


@in_virtual_time
async def test_nothing_moves_and_nothing_stops_while_the_ensemble_is_away() -> None:
    site = Site()
    one, other = Node(site, "paris-a").start(), Node(site, "paris-b")
    await becomes_owner(one, 0.5)
    other.start()
    await let_pass(10)
    for node in (one, other):
        assert node.coordination is not None
        node.coordination.away = True
    before = len(one.written)
    await let_pass(30)
    assert len(one.written) > before + 250
    assert other.reasons[-1] == "standing by; no ensemble in memory"
    for node in (other, one):
        assert node.coordination is not None
        node.coordination.away = False
    await let_pass(10)
    assert (one.turns, other.turns) == (1, 0)
    await one.stop()
    await other.stop()


@in_virtual_time
async def test_a_node_that_comes_back_takes_its_own_slot_without_the_ensemble() -> None:
    site = Site()
    one = Node(site, "paris-a").start()
    await becomes_owner(one, 0.5)
    await one.stop()
    again, other = Node(site, "paris-a", run="next"), Node(site, "paris-b")
    site.ensemble.away = True
    other.start()
    await let_pass(10)
    assert other.turns == 0, "another node may run the slot"
    again.start()
    await becomes_owner(again, 0.5)
    await again.stop()
    await other.stop()


@in_virtual_time
async def test_a_node_that_was_killed_takes_the_slot_back_from_its_own_entry() -> None:
    site = Site()
    entry = ClusterMember("paris-a", "killed run", "place of paris-a").encoded()
    for path in ("slots/0/owner", "nodes/paris-a"):
        site.ensemble.entries[path] = (entry, object())
    one = Node(site, "paris-a").start()
    await becomes_owner(one, 0.5)
    await one.stop()


@in_virtual_time
async def test_the_end_of_a_killed_node_s_session_takes_the_slot_from_nobody() -> None:
    site = Site()
    killed = Node(site, "paris-a", run="killed run").start()
    await becomes_owner(killed, 0.5)
    await killed.stop()
    session, entry = object(), ClusterMember("paris-a", "killed run", "place of paris-a").encoded()
    site.ensemble.entries["slots/0/owner"] = (entry, session)
    site.ensemble.away = True
    again, other = Node(site, "paris-a").start(), Node(site, "paris-b").start()
    await becomes_owner(again, 0.5)
    site.ensemble.away = False
    await let_pass(2 * SESSION_S)
    site.ensemble.expire(session)
    await let_pass(10 * SESSION_S)
    assert (again.turns, other.turns) == (1, 0)
    await again.stop()
    await other.stop()


@in_virtual_time
async def test_the_second_node_of_one_name_is_told_and_ends() -> None:
    site = Site()
    one = Node(site, "paris-a", place="one machine", run="one").start()
    await becomes_owner(one, 0.5)
    second = Node(site, "paris-a", place="another machine", run="two").start()
    error = await second.ended()
    assert isinstance(error, NodeStopped)
    assert error.reason == (
        "another machine runs a node of the name paris-a: give each of the site's nodes a name of"
        " its own"
    )
    assert one.is_owner
    await one.stop()


@in_virtual_time
async def test_a_machine_that_was_started_anew_gets_its_name_back() -> None:
    site = Site()
    stale = object()
    entry = ClusterMember("paris-a", "before the boot", "place before the boot").encoded()
    for path in ("slots/0/owner", "nodes/paris-a"):
        site.ensemble.entries[path] = (entry, stale)
    one = Node(site, "paris-a").start()
    await let_pass(1.5)
    assert one.turns == 0, "another machine may have this name"
    site.ensemble.expire(stale)
    await becomes_owner(one, 4)
    await one.stop()


@in_virtual_time
async def test_lost_answers_change_nothing() -> None:
    site = Site()
    one = Node(site, "paris-a").start()
    await let_pass(0)
    assert one.coordination is not None
    one.coordination.lost_answers = 3
    one.journal.trouble.lost_answers = 3
    await becomes_owner(one, 10)
    other = Node(site, "paris-b").start()
    await let_pass(0)
    assert other.coordination is not None
    other.coordination.lost_answers = 3
    await let_pass(10)
    one.coordination.lost_answers = 1
    await one.stop()
    await becomes_owner(other, 4)
    await other.stop()


@in_virtual_time
async def test_a_node_stands_by_through_an_absence_of_the_journal() -> None:
    site = Site()
    one, other = Node(site, "paris-a").start(), Node(site, "paris-b")
    await becomes_owner(one, 0.5)
    other.start()
    await let_pass(5)
    other.journal.trouble.away = True
    await let_pass(20)
    behind = other.last_row
    other.journal.trouble.away = False
    await let_pass(2)
    assert other.last_row > behind + 100
    await one.stop()
    await other.stop()


@in_virtual_time
async def test_a_node_without_its_journal_keeps_the_slot_from_nobody() -> None:
    site = Site()
    one, cut_off = Node(site, "paris-a").start(), Node(site, "paris-b")
    await becomes_owner(one, 0.5)
    cut_off.start()
    await let_pass(5)
    third = Node(site, "paris-c")
    cut_off.journal.trouble.away = True
    await one.stop()
    await let_pass(3 * SESSION_S)
    assert await MemoryCoordination(site.ensemble).read("slots/0/owner") is None
    third.start()
    await becomes_owner(third, 3 * SESSION_S)
    await third.stop()
    await cut_off.stop()


@in_virtual_time
async def test_a_node_that_loses_its_journal_as_it_takes_the_slot_gives_it_up() -> None:
    site = Site()
    one, cut_off = Node(site, "paris-a").start(), Node(site, "paris-b").start()
    await becomes_owner(one, 0.5)
    await let_pass(5)
    take = cut_off.journal.take

    async def loses(before: Ownership | None, owner: Owner) -> bool:
        cut_off.journal.trouble.away = True
        return await take(before, owner)

    cut_off.journal.take = loses  # type: ignore[method-assign]
    await one.stop()
    third = Node(site, "paris-c").start()
    await becomes_owner(third, 30)
    assert "the journal is away as this node takes the slot" in cut_off.reasons
    await third.stop()
    await cut_off.stop()


@in_virtual_time
async def test_a_copy_whose_rows_were_deleted_while_it_follows_begins_anew() -> None:
    site = Site()
    one, other = Node(site, "paris-a").start(), Node(site, "paris-b").start()
    await becomes_owner(one, 0.5)
    await let_pass(5)
    other.journal.trouble.away = True
    await let_pass(20)
    await snapshot_of(one)
    await let_pass(5)
    other.journal.trouble.away = False
    await let_pass(LOOK_BACK_EVERY_S + 2)
    assert other.last_row >= one.last_row - 10
    assert set(one.written[:-10]) <= other.keys
    await one.stop()
    await other.stop()


async def snapshot_of(node: Node) -> None:
    """Write a snapshot of an owner's copy, and delete all rows before it."""
    copy = SlotCopy(node.local, TABLES)
    row, parts = copy.last_row, list(copy.parts())
    for number, part in enumerate(parts):
        await node.journal.write_part(row, 1, number, part)
    made = JournalSnapshot(row, 1, row, len(parts))
    await node.journal.complete(made)
    await node.journal.forget(made)


@in_virtual_time
async def test_a_node_whose_own_journal_fails_lets_go() -> None:
    site = Site()
    one = Node(site, "paris-a").start()
    await becomes_owner(one, 0.5)
    site.slot.ownership = None
    assert (await _fenced(one)).now is None
    await one.stop()


async def _fenced(node: Node) -> SlotFenced:
    async with asyncio.timeout(5):
        while not node.fenced:
            await let_pass(0.05)
    return node.fenced[0]


@pytest.mark.parametrize("seed", range(50))
@in_virtual_time
async def test_three_nodes_that_come_and_go_keep_what_was_confirmed(seed: int) -> None:
    chance = random.Random(seed)
    site = Site()
    nodes = [Node(site, f"paris-{name}").start() for name in "abc"]
    for _ in range(30):
        await let_pass(chance.uniform(0, 6))
        node = chance.choice(nodes)
        assert node.coordination is not None
        match chance.randrange(6):
            case 0:
                node.freeze()
                node.coordination.freeze()
            case 1:
                node.coordination.expire()
            case 2:
                site.ensemble.expire_all()
            case 3:
                node.coordination.lost_answers = chance.randrange(3)
            case 4:
                node.journal.trouble.lost_answers = chance.randrange(3)
            case _:
                for one in nodes:
                    one.thaw()
                    if one.coordination is not None:
                        one.coordination.thaw()
    for node in nodes:
        node.thaw()
        if node.coordination is not None:
            node.coordination.thaw()
    await let_pass(20)
    assert sum(node.is_owner for node in nodes) == 1
    owner = next(node for node in nodes if node.is_owner)
    confirmed = {key for node in nodes for key in node.written}
    await owner.stop()
    await let_pass(20)
    for node in nodes:
        if node is not owner:
            assert confirmed <= node.keys
            await node.stop()


def test_an_entry_that_nobody_can_read_is_of_a_node_without_a_name() -> None:
    for data in (b"", b"\xff", b"[]", b"{}", b'{"node": "a"}'):
        assert ClusterMember.of(CoordinationEntry(data, is_own=False)) == ClusterMember("", "", "")
