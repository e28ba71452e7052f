"""Nodes that take a slot from each other at any moment: nothing confirmed is lost, copies agree."""

from __future__ import annotations

import asyncio
import random

import pytest

from dedup.journal.journal import (
    JournalAway,
    JournalRow,
    Owner,
    Ownership,
    SlotFenced,
    counting_rows,
)
from dedup.journal.journaled_store import JournaledStore
from dedup.journal.memory_journal import MemoryJournal, SlotRows
from dedup.journal.slot_copy import COPY, SlotCopy
from dedup.journal.slot_taking import SlotTaking, catch_up
from dedup.journal.snapshot_keeper import SnapshotKeeper, SnapshotPace
from dedup.memory_store import MemoryStore
from dedup.store import Changes
from tests.virtual_time import in_virtual_time, let_pass

SEEN = "seen"
TABLES = ("rows", SEEN)


class RacingNode:
    """A node that takes the slot, writes for a while, and is slow or frozen at any step. With a
    pace it writes snapshots meanwhile.
    """

    def __init__(
        self, slot: SlotRows, name: str, chance: random.Random, pace: SnapshotPace | None = None
    ) -> None:
        self.name = name
        self.local = MemoryStore((*TABLES, COPY))
        self.copy = SlotCopy(self.local, TABLES, [SEEN])
        self.confirmed: list[bytes] = []
        self._chance = chance
        self._pace = pace
        self._journal = MemoryJournal(slot, delay=self._delay)
        self._written = 0

    async def _delay(self) -> None:
        is_frozen = self._chance.random() < 0.05
        await let_pass(self._chance.uniform(0, 3.0 if is_frozen else 0.01))
        self._journal.trouble.lost_answers = int(self._chance.random() < 0.05)

    async def _retry(self, failures: int) -> None:
        await self._delay()

    async def live(self, turns: int) -> None:
        for _ in range(turns):
            await let_pass(self._chance.uniform(0, 0.5))
            await self.follow()
            try:
                await self._own()
            except SlotFenced:
                continue

    async def follow(self) -> None:
        while True:
            try:
                return await catch_up(self._journal, self.copy)
            except JournalAway:
                continue

    async def _own(self) -> None:
        run = self._chance.randbytes(16)
        taking = SlotTaking(self._journal, self.name, run, self._retry)
        owner = await taking.raise_epoch()
        await taking.read_and_begin(owner, self.copy)
        store = JournaledStore(self.copy, self._journal, owner, self._retry)
        keeping = None
        if self._pace is not None:
            keeper = SnapshotKeeper(self._journal, self.copy, owner.epoch, self._pace, self._retry)
            keeping = asyncio.create_task(keeper.run())
        try:
            for _ in range(self._chance.randrange(20)):
                self._written += 1
                key = f"{self.name} {self._written}".encode()
                changes = Changes()
                changes.put("rows", key, b"")
                changes.put(SEEN, key, b"")
                if self._chance.random() < 0.1:
                    store.clear_table(SEEN)
                await store.write_synced(changes)
                self.confirmed.append(key)
        finally:
            if keeping is not None:
                keeping.cancel()
                await asyncio.wait([keeping])
            await store.release()


@pytest.mark.parametrize("pace", [None, SnapshotPace(4, 0.2)], ids=["rows", "snapshots"])
@pytest.mark.parametrize("seed", range(100))
@in_virtual_time
async def test_what_was_confirmed_is_in_every_copy(seed: int, pace: SnapshotPace | None) -> None:
    chance = random.Random(seed)
    slot = SlotRows()
    nodes = [RacingNode(slot, f"paris-{name}", chance, pace) for name in "abc"]
    await asyncio.gather(*(node.live(5) for node in nodes))
    last = RacingNode(slot, "paris-d", chance)
    for node in (last, *nodes):
        await node.follow()
    kept, seen = (dict(last.local.scan(table)) for table in TABLES)
    for node in nodes:
        assert set(node.confirmed) <= kept.keys()
        assert [dict(node.local.scan(table)) for table in TABLES] == [kept, seen]
    assert kept
    assert (slot.first > 1) <= (pace is not None)


def test_nothing_behind_a_gap_counts() -> None:
    paris = Owner(1, b"run", "paris-a")
    rows = [JournalRow(1, 1, b""), JournalRow(3, 1, b"")]
    assert list(counting_rows(rows, Ownership(paris, {1: 0}, b""), 0, None)) == rows[:1]


def test_rows_of_an_epoch_without_a_beginning_count_for_nobody() -> None:
    paris = Owner(2, b"run", "paris-a")
    rows = [JournalRow(1, 1, b""), JournalRow(2, 2, b"")]
    assert list(counting_rows(rows, Ownership(paris, {1: 0}, b""), 0, paris)) == rows[:1]
    assert not list(counting_rows(rows, Ownership(paris, {1: 0}, b""), 0, None))
