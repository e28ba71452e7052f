"""Store over a journal: what a successor finds, and what refuses a former owner."""

from __future__ import annotations

import asyncio
import random

import pytest

from dedup.journal.journal import JournalFull, JournalRow, SlotFenced
from dedup.journal.journaled_store import JournaledStore
from dedup.journal.memory_journal import JournalTrouble, MemoryJournal, SlotRows
from dedup.journal.slot_copy import COPY, SlotCopy
from dedup.journal.slot_taking import SlotTaking, catch_up
from dedup.memory_store import MemoryStore
from dedup.store import Changes, Store, StoreClosed
from tests.virtual_time import in_virtual_time, let_pass

TABLES = ("seen", "rows")
Content = dict[str, dict[bytes, bytes]]


async def retry(failures: int) -> None:
    await let_pass(0.1)


class SlotNode:
    """A node of a site: its copy of the slot's journal, and its way to the journal."""

    def __init__(self, slot: SlotRows, name: str) -> None:
        self.name = name
        self.trouble = JournalTrouble()
        self.journal = MemoryJournal(slot, self.trouble, lambda: let_pass(0.002))
        self.local = MemoryStore((*TABLES, COPY))
        self.copy = SlotCopy(self.local, TABLES)
        self._takes = 0

    def taking(self) -> SlotTaking:
        self._takes += 1
        run = f"{self.name} {self._takes}".encode()
        return SlotTaking(self.journal, self.name, run, retry)

    async def take(self) -> JournaledStore:
        taking = self.taking()
        owner = await taking.raise_epoch()
        await taking.read_and_begin(owner, self.copy)
        return JournaledStore(self.copy, self.journal, owner, retry)


async def three_nodes() -> tuple[SlotRows, JournaledStore, list[SlotNode]]:
    """Return a slot, its owner's store with one row, and the owner and two more nodes."""
    slot = SlotRows()
    nodes = [SlotNode(slot, f"paris-{name}") for name in "abc"]
    store = await nodes[0].take()
    await store.write_synced(put(b"a"))
    return slot, store, nodes


def content(store: Store) -> Content:
    return {table: dict(store.scan(table)) for table in TABLES}


def put(key: bytes, value: bytes = b"x") -> Changes:
    changes = Changes()
    changes.put("rows", key, value)
    return changes


def some_changes(chance: random.Random) -> Changes:
    changes = Changes()
    for _ in range(chance.randint(1, 6)):
        table, key = chance.choice(TABLES), bytes([chance.randrange(40)])
        match chance.randrange(4):
            case 0:
                changes.delete(table, key)
            case 1:
                changes.delete_range(table, key, bytes([key[0] + chance.randrange(10)]))
            case _:
                changes.put(table, key, chance.randbytes(chance.randrange(4)))
    return changes


@pytest.mark.parametrize("seed", range(30))
@in_virtual_time
async def test_reads_see_all_writes_and_a_successor_a_prefix_with_all_that_was_synced(
    seed: int,
) -> None:
    chance = random.Random(seed)
    slot = SlotRows()
    paris, other = SlotNode(slot, "paris-a"), SlotNode(slot, "paris-b")
    store, twin = await paris.take(), MemoryStore(TABLES)
    states = [content(twin)]
    synced = 0
    for _ in range(chance.randint(5, 60)):
        paris.trouble.lost_answers = chance.choice([0, 0, 0, 1, 3])
        match chance.randrange(8):
            case 0:
                await store.synced()
                synced = len(states) - 1
            case 1:
                await let_pass(chance.choice([0.001, 0.003, 0.06]))
            case 2:
                table = chance.choice(TABLES)
                store.clear_table(table)
                twin.clear_table(table)
                states.append(content(twin))
            case _:
                changes = some_changes(chance)
                store.write(changes)
                twin.write(changes)
                states.append(content(twin))
        assert content(store) == states[-1]
        keys = [bytes([chance.randrange(40)]) for _ in range(5)]
        for table in TABLES:
            assert store.get_many(table, keys) == twin.get_many(table, keys)
    paris.trouble.lost_answers = 0
    await other.take()
    found = content(other.local)
    assert found in states[synced:]
    await catch_up(paris.journal, paris.copy)
    assert content(paris.local) == found, "the former owner's copy has nothing to take back"


@in_virtual_time
async def test_an_owner_that_lost_its_slot_is_refused_at_its_next_row() -> None:
    slot = SlotRows()
    paris, other = SlotNode(slot, "paris-a"), SlotNode(slot, "paris-b")
    store = await paris.take()
    await store.write_synced(put(b"a"))
    successor = await other.take()
    with pytest.raises(SlotFenced, match="paris-b's, in epoch 2"):
        await store.write_synced(put(b"b"))
    with pytest.raises(SlotFenced):
        store.write(put(b"c"))
    await successor.write_synced(put(b"d"))
    await catch_up(paris.journal, paris.copy)
    assert content(paris.local) == content(other.local) == content(successor)
    assert content(successor)["rows"] == {b"a": b"x", b"d": b"x"}


@in_virtual_time
async def test_a_row_that_lands_after_the_next_epoch_began_is_void_for_everybody() -> None:
    slot, store, (paris, other, third) = await three_nodes()
    paris.trouble.late = late = []
    waiting = asyncio.ensure_future(store.write_synced(put(b"late")))
    await let_pass(0.01)
    successor = await other.take()
    await catch_up(third.journal, third.copy)
    slot.land(late)
    await successor.write_synced(put(b"b"))
    paris.trouble.late = None
    with pytest.raises(SlotFenced):
        await waiting
    await catch_up(third.journal, third.copy)
    assert content(third.local)["rows"] == {b"a": b"x", b"b": b"x"}
    assert content(third.local) == content(successor)


@in_virtual_time
async def test_a_taker_that_slept_while_another_took_the_slot_is_refused() -> None:
    slot, _, (_, sleeper, other) = await three_nodes()
    taking = sleeper.taking()
    owner = await taking.raise_epoch()
    successor = await other.take()
    slot.land([JournalRow(2, 1, b"a row of paris-a that was on its way")])
    with pytest.raises(SlotFenced, match="paris-c"):
        await taking.read_and_begin(owner, sleeper.copy)
    await successor.write_synced(put(b"b"))
    await catch_up(sleeper.journal, sleeper.copy)
    assert content(sleeper.local) == content(successor)


@in_virtual_time
async def test_a_copy_takes_no_row_of_an_epoch_whose_end_is_not_stated_yet() -> None:
    _, _, (_, other, copy) = await three_nodes()
    taking = other.taking()
    owner = await taking.raise_epoch()
    await catch_up(copy.journal, copy.copy)
    assert copy.copy.last_row == 0
    await taking.read_and_begin(owner, other.copy)
    await catch_up(copy.journal, copy.copy)
    assert copy.copy.last_row == 1


@in_virtual_time
async def test_of_two_takers_at_once_one_is_refused() -> None:
    slot = SlotRows()
    nodes = [SlotNode(slot, f"paris-{name}") for name in "ab"]
    taken = await asyncio.gather(*(node.take() for node in nodes), return_exceptions=True)
    assert sorted(type(one).__name__ for one in taken) == ["JournaledStore", "SlotFenced"]


@in_virtual_time
async def test_while_no_quorum_answers_writes_wait_and_stay_readable() -> None:
    slot = SlotRows()
    paris = SlotNode(slot, "paris-a")
    store = await paris.take()
    paris.trouble.away = True
    waiting = asyncio.ensure_future(store.write_synced(put(b"a")))
    await let_pass(30)
    assert not waiting.done()
    assert store.get("rows", b"a") == b"x"
    assert store.journal.away_since is not None
    assert store.journal.waiting
    paris.trouble.away = False
    await waiting
    assert store.journal.away_since is None
    assert not store.journal.waiting


@in_virtual_time
async def test_no_more_than_64_mib_wait_for_a_quorum() -> None:
    slot = SlotRows()
    paris = SlotNode(slot, "paris-a")
    store = await paris.take()
    paris.trouble.away = True
    waiting = asyncio.ensure_future(store.write_synced(put(b"a")))
    await let_pass(1)
    store.write(put(b"b", bytes(63 * 2**20)))
    with pytest.raises(JournalFull, match="64 MiB of writes wait for the journal"):
        store.write(put(b"c", bytes(2**20)))
    with pytest.raises(JournalFull):
        await waiting
    with pytest.raises(JournalFull):
        await store.until_failed()
    await store.release()


@in_virtual_time
async def test_what_waits_is_counted_until_its_row_counts() -> None:
    store = await SlotNode(SlotRows(), "paris-a").take()
    store.write(put(b"a", bytes(1000)))
    store.clear_table("seen")
    assert store.journal.waiting_bytes >= 1000
    await store.synced()
    assert store.journal.waiting_bytes == 0


@in_virtual_time
async def test_the_times_of_rows_leave_out_attempts_that_failed() -> None:
    node = SlotNode(SlotRows(), "paris-a")
    store = await node.take()
    await store.write_synced(put(b"a"))
    node.trouble.away = True
    writing = asyncio.create_task(store.write_synced(put(b"b")))
    await let_pass(60)
    node.trouble.away = False
    await writing
    first, second = store.journal.row_times_s
    assert max(first, second) < 0.02


@in_virtual_time
async def test_writes_that_nobody_waits_for_share_a_row() -> None:
    slot = SlotRows()
    store = await SlotNode(slot, "paris-a").take()
    for number in range(100):
        store.write(put(bytes([number])))
    await let_pass(1)
    assert len(slot.rows) == 1
    store.write(put(b"a", bytes(200 * 1024)))
    store.write(put(b"b", bytes(200 * 1024)))
    store.write(put(b"c", bytes(200 * 1024)))
    await store.synced()
    assert len(slot.rows) == 3, "no row is bigger than one write needs"


@in_virtual_time
async def test_a_released_store_takes_no_more_and_leaves_nobody_waiting() -> None:
    slot = SlotRows()
    paris = SlotNode(slot, "paris-a")
    store = await paris.take()
    paris.trouble.away = True
    waiting = asyncio.ensure_future(store.write_synced(put(b"a")))
    await let_pass(1)
    await store.release()
    with pytest.raises(StoreClosed):
        await waiting
    with pytest.raises(StoreClosed):
        store.write(put(b"b"))
    assert content(paris.local)["rows"] == {}
