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
from dedup.journal.journaled_store import COPY, JournaledStore
from dedup.journal.memory_journal import MemoryJournal, SlotRows
from dedup.journal.slot_taking import SlotTaking, catch_up
from dedup.memory_store import MemoryStore
from dedup.store import Changes
from tests.virtual_time import in_virtual_time, let_pass

TABLES = ("rows",)


class RacingNode:
    """A node that takes the slot, writes for a while, and is slow or frozen at any step."""

    def __init__(self, slot: SlotRows, name: str, chance: random.Random) -> None:
        self.name = name
        self.local = MemoryStore((*TABLES, COPY))
        self.confirmed: list[bytes] = []
        self._chance = chance
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
                return await catch_up(self._journal, self.local)
            except JournalAway:
                continue

    async def _own(self) -> None:
        run = self._chance.randbytes(16)
        taking = SlotTaking(self._journal, self.name, run, self._retry)
        owner = await taking.raise_epoch()
        await taking.read_and_begin(owner, self.local)
        store = JournaledStore(self.local, TABLES, self._journal, owner, self._retry)
        for _ in range(self._chance.randrange(20)):
            self._written += 1
            key = f"{self.name} {self._written}".encode()
            changes = Changes()
            changes.put("rows", key, b"")
            await store.write_synced(changes)
            self.confirmed.append(key)
        await store.release()


@pytest.mark.parametrize("seed", range(100))
@in_virtual_time
async def test_what_was_confirmed_is_in_every_copy(seed: int) -> None:
    chance = random.Random(seed)
    slot = SlotRows()
    nodes = [RacingNode(slot, f"paris-{name}", chance) for name in "abc"]
    await asyncio.gather(*(node.live(5) for node in nodes))
    last = RacingNode(slot, "paris-d", chance)
    for node in (last, *nodes):
        await node.follow()
    kept = dict(last.local.scan("rows"))
    for node in nodes:
        assert set(node.confirmed) <= kept.keys()
        assert dict(node.local.scan("rows")) == kept
    assert kept


def test_nothing_behind_a_gap_counts() -> None:
    paris = Owner(1, b"run", "paris-a")
    rows = [JournalRow(1, 1, b""), JournalRow(3, 1, b"")]
    assert list(counting_rows(rows, Ownership(paris, {1: 0}), 0, None)) == rows[:1]


def test_rows_of_an_epoch_without_a_beginning_count_for_nobody() -> None:
    paris = Owner(2, b"run", "paris-a")
    rows = [JournalRow(1, 1, b""), JournalRow(2, 2, b"")]
    assert list(counting_rows(rows, Ownership(paris, {1: 0}), 0, paris)) == rows[:1]
    assert not list(counting_rows(rows, Ownership(paris, {1: 0}), 0, None))
