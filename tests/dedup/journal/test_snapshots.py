"""Snapshots of a slot: what a new copy begins from once rows of the journal are deleted."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from dedup.journal.journal import JournalDamaged, JournalRow, JournalSnapshot, Owner
from dedup.journal.journaled_store import JournaledStore
from dedup.journal.memory_journal import MemoryJournal, SlotRows
from dedup.journal.slot_copy import COPY, PART_BYTES, SlotCopy
from dedup.journal.slot_taking import SlotTaking, catch_up
from dedup.journal.snapshot_keeper import SnapshotKeeper, SnapshotPace
from dedup.memory_store import MemoryStore
from dedup.store import Changes
from relay import crash_points
from relay.cluster.journal_moments import JournalMoments
from tests.virtual_time import in_virtual_time

TABLES = ("rows", "young", "old")
GENERATIONS = ("young", "old")


async def retry(failures: int) -> None:
    raise AssertionError(f"nothing fails here, {failures}")


class Slot:
    """A slot, its owner's store, and the owner's snapshots, written when asked for."""

    def __init__(self) -> None:
        self.rows = SlotRows()
        self.journal = MemoryJournal(self.rows)
        self.copy = new_copy()
        self.store: JournaledStore

    async def taken(self) -> Slot:
        taking = SlotTaking(self.journal, "paris-a", random.randbytes(16), retry)
        owner = await taking.raise_epoch()
        await taking.read_and_begin(owner, self.copy)
        self.store = JournaledStore(self.copy, self.journal, owner, retry)
        return self

    async def row(self, *puts: tuple[str, bytes], emptied: str = "") -> None:
        """Write one row."""
        changes = Changes()
        for table, key in puts:
            changes.put(table, key, b"x")
        if emptied:
            self.store.clear_table(emptied)
        await self.store.write_synced(changes)

    async def look(self, rows: int = 1) -> JournalSnapshot:
        """Have a snapshot written if it is due after so many rows; return the latest one."""
        keeper = SnapshotKeeper(self.journal, self.copy, 1, SnapshotPace(rows), retry)
        await keeper.look()
        found = await self.journal.snapshot()
        assert found is not None
        return found

    def is_in(self, copy: SlotCopy) -> bool:
        return content(copy) == content(self.copy) and copy.last_row == self.copy.last_row


def new_copy() -> SlotCopy:
    return SlotCopy(MemoryStore((*TABLES, COPY)), TABLES, GENERATIONS)


def content(copy: SlotCopy) -> dict[str, dict[bytes, bytes]]:
    return {table: dict(copy.store.scan(table)) for table in TABLES}


async def rotated() -> Slot:
    """Return a slot both of whose generations were emptied, the last in row 4 of 6, and a snapshot
    of row 5.
    """
    slot = await Slot().taken()
    await slot.row(("rows", b"1"), ("young", b"1"))
    await slot.row(("young", b"2"), emptied="old")
    await slot.row(("rows", b"3"), ("old", b"3"))
    await slot.row(("rows", b"4"), ("young", b"4"), emptied="young")
    await slot.row(("old", b"5"), ("rows", b"5"))
    await slot.look()
    await slot.row(("rows", b"6"))
    return slot


@in_virtual_time
async def test_a_new_copy_begins_from_the_snapshot_and_has_all() -> None:
    slot = await rotated()
    assert sorted(slot.rows.rows) == [2, 3, 4, 5, 6], "since the generation emptied first"
    copy = new_copy()
    await catch_up(slot.journal, copy)
    assert slot.is_in(copy)
    assert copy.replay_from == 2


@in_virtual_time
async def test_a_copy_that_was_away_begins_anew_only_where_it_lacks_deleted_rows() -> None:
    slot = await Slot().taken()
    behind, near = new_copy(), new_copy()
    await slot.row(("rows", b"1"), ("young", b"1"))
    await catch_up(slot.journal, behind)
    await slot.row(emptied="young")
    await slot.row(("rows", b"3"), emptied="old")
    await catch_up(slot.journal, near)
    near.store.write(marked())
    await slot.row(("rows", b"4"), emptied="young")
    assert (await slot.look()).replay_from == 3
    for copy in (behind, near):
        await catch_up(slot.journal, copy)
        near.store.clear_table("old")
        assert slot.is_in(copy)


@in_virtual_time
async def test_rows_that_are_deleted_while_a_node_takes_the_slot_are_not_the_journals_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slot = await Slot().taken()
    await slot.row(("rows", b"1"), ("young", b"1"))
    taken = new_copy()
    await catch_up(slot.journal, taken)
    await slot.row(("rows", b"2"))
    await slot.row(emptied="young")
    await slot.row(("rows", b"4"), emptied="old")
    asked = slot.journal.snapshot

    async def is_read_just_before_the_next_is_complete() -> JournalSnapshot | None:
        found = await asked()
        monkeypatch.setattr(slot.journal, "snapshot", asked)
        await slot.look()
        return found

    monkeypatch.setattr(slot.journal, "snapshot", is_read_just_before_the_next_is_complete)
    taking = SlotTaking(slot.journal, "paris-b", b"another run", retry)
    await taking.read_and_begin(await taking.raise_epoch(), taken)
    assert min(slot.rows.rows) == 3, "what the copy needed next was deleted"
    assert slot.is_in(taken)


class Died(Exception):
    """End of a node at a crash point."""


@pytest.mark.parametrize(
    "point", [one for one in crash_points.POINTS if one.startswith("snapshot")]
)
@in_virtual_time
async def test_a_node_that_dies_amid_a_snapshot_is_followed_by_one_that_has_all(
    point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = await rotated()
    await slot.row(("rows", b"7"), emptied="old")
    await slot.row(("old", b"8"), emptied="young")
    moments = JournalMoments(slot.journal)

    def dies(reached: str) -> None:
        if reached == point:
            raise Died

    async def lives() -> None:
        await SnapshotKeeper(moments, slot.copy, 1, SnapshotPace(1), retry).look()
        await catch_up(moments, new_copy())

    with monkeypatch.context() as patched:
        patched.setattr(crash_points, "reach", dies)
        with pytest.raises(Died):
            await lives()
    for number in range(2):
        taken = new_copy()
        taking = SlotTaking(slot.journal, f"paris-{number}", random.randbytes(16), retry)
        owner = await taking.raise_epoch()
        await taking.read_and_begin(owner, taken)
        assert slot.is_in(taken)
        pace = SnapshotPace(1)
        await SnapshotKeeper(slot.journal, taken, owner.epoch, pace, retry).look()


@in_virtual_time
async def test_a_copy_of_another_journal_begins_anew() -> None:
    former, slot = await Slot().taken(), await Slot().taken()
    behind, ahead = new_copy(), new_copy()
    await former.row(("rows", b"former"))
    await catch_up(former.journal, behind)
    for _ in range(9):
        await former.row(("rows", b"former too"))
    await catch_up(former.journal, ahead)
    for number in range(3):
        await slot.row(("rows", b"%d" % number))
    for copy in (behind, ahead):
        await catch_up(slot.journal, copy)
        assert slot.is_in(copy)


def marked() -> Changes:
    changes = Changes()
    changes.put("old", b"this copy", b"")
    return changes


@in_virtual_time
async def test_a_snapshot_is_due_after_many_rows_or_a_rotation_and_not_before() -> None:
    slot = await Slot().taken()
    await slot.row(("rows", b"1"))
    keeper = SnapshotKeeper(slot.journal, slot.copy, 1, SnapshotPace(3), retry)
    await keeper.look()
    assert await slot.journal.snapshot() is None
    await slot.row(("rows", b"2"))
    await slot.row(("rows", b"3"))
    assert (await slot.look(3)).row == 3
    await slot.row(emptied="old")
    assert (await slot.look(3)).row == 3, "the young generation needs all rows"
    await slot.row(emptied="young")
    assert (await slot.look(3)) == JournalSnapshot(5, 1, 4, 2)
    assert min(slot.rows.rows) == 4


@in_virtual_time
async def test_what_is_written_meanwhile_is_whole_in_a_new_copy() -> None:
    slot = await Slot().taken()
    chance = random.Random(1)
    for number in range(40):
        changes = Changes()
        changes.put("rows", b"%d" % number, chance.randbytes(PART_BYTES // 4))
        await slot.store.write_synced(changes)
    write_part = slot.journal.write_part

    async def writes(row: int, epoch: int, number: int, data: bytes) -> None:
        changes = Changes()
        changes.delete("rows", b"%d" % number)
        changes.put("rows", b"%d" % (39 - number), b"new")
        await slot.store.write_synced(changes)
        await write_part(row, epoch, number, data)

    slot.journal.write_part = writes  # type: ignore[method-assign]
    assert (await slot.look()).parts > 5
    copy = new_copy()
    slot.rows.rows = {number: row for number, row in slot.rows.rows.items() if number > 1}
    slot.rows.snapshots = [one._replace(replay_from=2) for one in slot.rows.snapshots]
    await catch_up(slot.journal, copy)
    assert slot.is_in(copy)


class Dying(MemoryJournal):
    """Journal whose reader dies after so many calls."""

    def __init__(self, rows: SlotRows, calls: int) -> None:
        super().__init__(rows)
        self._calls = calls

    async def _ask(self) -> None:
        self._calls -= 1
        if self._calls < 0:
            raise InterruptedError
        await super()._ask()

    async def rows(self, after: int) -> AsyncIterator[JournalRow]:
        async for row in super().rows(after):
            yield row


@pytest.mark.parametrize("calls", range(1, 10))
@in_virtual_time
async def test_a_copy_whose_node_died_as_it_began_anew_begins_again(calls: int) -> None:
    slot = await rotated()
    copy = new_copy()
    copy.store.write(marked())
    try:
        await catch_up(Dying(slot.rows, calls), copy)
    except InterruptedError:
        await catch_up(slot.journal, copy)
    assert slot.is_in(copy)


@in_virtual_time
async def test_a_later_snapshot_is_taken_where_the_first_is_deleted_meanwhile() -> None:
    slot = await rotated()
    copy = new_copy()
    part = slot.journal.part

    async def reads(row: int, epoch: int, number: int) -> bytes | None:
        if row == 5:
            await slot.row(emptied="old")
            await slot.look()
            await slot.row(emptied="young")
            await slot.look()
        return await part(row, epoch, number)

    slot.journal.part = reads  # type: ignore[method-assign]
    await catch_up(slot.journal, copy)
    assert slot.is_in(copy)


@in_virtual_time
async def test_a_gap_is_waited_out_by_who_follows_and_is_damage_to_who_takes() -> None:
    slot = await Slot().taken()
    for key in (b"1", b"2", b"3"):
        await slot.row(("rows", key))
    late = slot.rows.rows.pop(2)
    copy = new_copy()
    await catch_up(slot.journal, copy)
    await catch_up(slot.journal, copy)
    assert copy.last_row == 1
    taking = SlotTaking(slot.journal, "paris-b", b"run b", retry)
    owner = await taking.raise_epoch()
    with pytest.raises(JournalDamaged):
        await taking.read_and_begin(owner, copy)
    slot.rows.rows[2] = late
    await taking.read_and_begin(owner, copy)
    assert slot.is_in(copy)


@in_virtual_time
async def test_a_copy_that_lacks_deleted_rows_never_takes_the_slot_without_them() -> None:
    slot = await rotated()
    slot.rows.parts.clear()
    taking = SlotTaking(slot.journal, "paris-b", b"run b", retry)
    owner = await taking.raise_epoch()
    with pytest.raises(JournalDamaged, match="rows or parts of the journal are missing"):
        await taking.read_and_begin(owner, new_copy())
    assert slot.rows.ownership is not None
    assert slot.rows.ownership.owner == Owner(2, b"run b", "paris-b")
    assert 2 not in slot.rows.ownership.begins
