"""Moves of a site's state into the journal of a cluster, and back into the folder of one node."""

from __future__ import annotations

import dataclasses
import random
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dedup.journal.journal import Owner, Ownership, SlotFenced, SlotReserved
from dedup.journal.memory_journal import MemoryJournal, SlotRows
from dedup.journal.slot_copy import COPY, SlotCopy
from dedup.journal.slot_taking import SlotTaking, catch_up
from dedup.memory_store import MemoryStore
from dedup.store import Changes, Store
from relay import crash_points
from relay.cluster.memory_coordination import MemoryCoordination, MemoryEnsemble
from relay.cluster.moving import (
    MoveAccess,
    MoveRefused,
    move_in,
    move_out,
)
from relay.node.machine import open_store
from relay.node.site_folder import MOVED, STATE, slot_folder
from relay.state.node_state import TABLES, Commit, NodeState

Content = dict[str, dict[bytes, bytes]]


class Died(Exception):
    """End of a move at a crash point."""


async def retry(failures: int) -> None:
    raise AssertionError(f"nothing fails here, {failures}")


class Cluster:
    """Servers of a site, and a way of a move to them."""

    def __init__(self) -> None:
        self.rows = SlotRows()
        self.journal = MemoryJournal(self.rows)
        self.ensemble = MemoryEnsemble()
        self.access = MoveAccess(
            journal=self.journal,
            coordination=MemoryCoordination(self.ensemble),
            run=lambda: random.randbytes(16),
            retry=retry,
        )

    def taking(self, node: str) -> SlotTaking:
        return SlotTaking(self.journal, node, random.randbytes(16), retry)

    async def taken(self, node: str = "paris-a") -> Store:
        """Have a node take the slot; return its copy."""
        copy = SlotCopy(MemoryStore((*TABLES, COPY)), TABLES)
        taking = self.taking(node)
        await taking.read_and_begin(await taking.raise_epoch(), copy)
        return copy.store

    async def copied(self) -> Store:
        """Return the copy of a node that follows."""
        copy = SlotCopy(MemoryStore((*TABLES, COPY)), TABLES)
        await catch_up(self.journal, copy)
        return copy.store


def content(store: Store) -> Content:
    return {table: dict(store.scan(table)) for table in TABLES}


def kept(folder: Path) -> Content:
    """Return what the site's folder has."""
    store = open_store(folder / STATE)
    try:
        return content(store)
    finally:
        store.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a site with one node that has worked, and ended."""
    store = open_store(tmp_path / STATE)
    state = NodeState(store)
    state.begin(b"a state's own ID")
    chance = random.Random(1)
    for table in TABLES:
        changes = Changes()
        for number in range(3000):
            changes.put(table, b"key %d" % number, chance.randbytes(200))
        store.write(changes)
    state.end(Commit())
    store.close()
    (tmp_path / "members.json").write_text("{}")
    (tmp_path / "ledger" / "revisions").mkdir(parents=True)
    (tmp_path / "ledger" / "revisions" / "r1.json").write_text('{"revision": "r1"}')
    return tmp_path


async def test_a_state_moves_in_with_its_files_and_out_again(folder: Path) -> None:
    before, cluster, seen = kept(folder), Cluster(), list[int]()
    assert await move_in(folder, [cluster.access], seen.append) == seen[-1]
    assert seen == sorted(seen)
    assert (folder / MOVED).exists()
    inside = content(await cluster.taken())
    files = {key for key in inside["state"] if key not in before["state"]}
    assert files == {b"mfile members.json", b"mfile ledger/revisions/r1.json"}
    assert {**inside, "state": {k: v for k, v in inside["state"].items() if k not in files}} == (
        before
    )
    (folder / "members.json").unlink()
    await move_out(folder, [cluster.access], seen.append)
    assert kept(folder) == before
    assert (folder / "members.json").read_text() == "{}"
    assert not (folder / MOVED).exists()
    assert sorted(path.name for path in folder.iterdir()) == ["ledger", "members.json", "state"]
    with pytest.raises(SlotReserved, match="cluster end"):
        await cluster.taken()
    (folder / "members.json").unlink()
    await move_in(folder, [cluster.access], seen.append)
    again = content(await cluster.copied())
    assert inside["state"].pop(b"mfile members.json") == b"{}"
    assert again == inside, "what was not in the folder any more stayed away"


class Cut:
    """A move that is killed at a crash point."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    async def at(
        self, point: str, move: Callable[..., Awaitable[int]], folder: Path, to: Cluster
    ) -> None:
        await self.after(1, point, move, folder, [to.access])

    async def after(
        self,
        times: int,
        point: str,
        move: Callable[..., Awaitable[int]],
        folder: Path,
        to: list[MoveAccess],
    ) -> None:
        """Kill it at the point, reached for the so many-th time."""
        left = times

        def dies(reached: str) -> None:
            nonlocal left
            left -= reached == point
            if not left:
                raise Died

        with self._monkeypatch.context() as patched:
            patched.setattr(crash_points, "reach", dies)
            with pytest.raises(Died):
                await move(folder, to, lambda keys: None)


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Cut:
    return Cut(monkeypatch)


@pytest.mark.parametrize("point", ["move.piece", "move.in"])
async def test_a_move_in_that_was_cut_short_is_made_again_as_a_whole(
    point: str, folder: Path, cut: Cut
) -> None:
    before, cluster = kept(folder), Cluster()
    await cut.at(point, move_in, folder, cluster)
    assert kept(folder) == before
    # From before any node may take the state, the folder's own node may not.
    assert (folder / MOVED).exists() == (point == "move.in")
    with pytest.raises(SlotReserved, match="cluster begin` was not finished"):
        await cluster.taken()
    with pytest.raises(MoveRefused, match="no whole state"):
        await move_out(folder, [cluster.access], lambda keys: None)
    await move_in(folder, [cluster.access], lambda keys: None)
    assert content(await cluster.taken())["names"] == before["names"]


@pytest.mark.parametrize("point", ["move.out", "move.arrived"])
async def test_a_move_out_that_was_cut_short_is_made_again_as_a_whole(
    point: str, folder: Path, cut: Cut, tmp_path: Path
) -> None:
    before, cluster = kept(folder), Cluster()
    await move_in(folder, [cluster.access], lambda keys: None)
    await cluster.taken()
    await cut.at(point, move_out, folder, cluster)
    with pytest.raises(SlotReserved, match="cluster end` was not finished"):
        await cluster.taken()
    # The folder may have its state from before it moved in, which must not come back.
    with pytest.raises(MoveRefused, match="nothing may write over it"):
        await move_in(folder, [cluster.access], lambda keys: None)
    moved = await move_out(folder, [cluster.access], lambda keys: None)
    assert (moved == 0) == (point == "move.arrived")
    assert kept(folder)["names"] == before["names"]
    assert not (folder / MOVED).exists()
    with pytest.raises(MoveRefused, match="before: start that node"):
        await move_out(tmp_path / "another machine's", [cluster.access], lambda keys: None)
    await move_in(folder, [cluster.access], lambda keys: None)


async def test_a_state_that_has_moved_in_does_not_come_back_over_a_later_one(
    folder: Path, tmp_path: Path
) -> None:
    cluster, elsewhere = Cluster(), tmp_path / "elsewhere"
    await move_in(folder, [cluster.access], lambda keys: None)
    elsewhere.mkdir()
    await move_out(elsewhere, [cluster.access], lambda keys: None)
    with pytest.raises(MoveRefused, match="out of date"):
        await move_in(folder, [cluster.access], lambda keys: None)
    await move_in(elsewhere, [cluster.access], lambda keys: None)


async def test_a_move_out_does_not_take_another_state_for_its_own(
    folder: Path, cut: Cut, tmp_path: Path
) -> None:
    cluster, elsewhere = Cluster(), tmp_path / "elsewhere"
    await move_in(folder, [cluster.access], lambda keys: None)
    await cut.at("move.out", move_out, folder, cluster)
    elsewhere.mkdir()
    store = open_store(elsewhere / STATE)
    NodeState(store).begin(b"another state's ID")
    store.close()
    with pytest.raises(MoveRefused, match="there is another state in"):
        await move_out(elsewhere, [cluster.access], lambda keys: None)
    assert await move_out(folder, [cluster.access], lambda keys: None)


async def test_of_two_moves_at_once_one_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, others = Cluster(), list[Owner]()

    async def reads_for_the_last_time() -> Ownership | None:
        found = await MemoryJournal.ownership(cluster.journal)
        if not others:
            # Another machine's command begins in this moment.
            others.append(Owner(1, b"another's", "(moving)"))
            assert await cluster.journal.take(found, others[0])
        return found

    monkeypatch.setattr(cluster.journal, "ownership", reads_for_the_last_time)
    with pytest.raises(SlotFenced):
        await move_in(folder, [cluster.access], lambda keys: None)
    now = await cluster.journal.ownership()
    assert now is not None
    assert now.owner == others[0]
    assert not (folder / MOVED).exists()


async def test_what_a_move_had_of_another_journal_is_of_no_worth(folder: Path, cut: Cut) -> None:
    await cut.at("move.piece", move_in, folder, Cluster())
    anew = Cluster()  # its operator has dropped all, to start over
    await move_in(folder, [anew.access], lambda keys: None)
    assert content(await anew.taken())["names"] == kept(folder)["names"]


async def test_nothing_moves_while_a_node_runs(folder: Path) -> None:
    cluster = Cluster()
    node = MemoryCoordination(cluster.ensemble)
    await node.add("nodes/paris-b", b"{}")
    for move in (move_in, move_out):
        with pytest.raises(MoveRefused):
            await move(folder, [cluster.access], lambda keys: None)
    assert await cluster.journal.ownership() is None
    assert not (folder / MOVED).exists()


async def test_nothing_is_written_over_a_state(folder: Path) -> None:
    cluster = Cluster()
    await cluster.taken()
    with pytest.raises(MoveRefused, match="last of paris-a: nothing may write over it"):
        await move_in(folder, [cluster.access], lambda keys: None)
    with pytest.raises(MoveRefused, match="there is a state in"):
        await move_out(folder, [cluster.access], lambda keys: None)


async def test_what_is_not_there_does_not_move(tmp_path: Path) -> None:
    cluster = Cluster()
    with pytest.raises(MoveRefused, match="there is no state"):
        await move_in(tmp_path, [cluster.access], lambda keys: None)
    with pytest.raises(MoveRefused, match="the cluster has no state"):
        await move_out(tmp_path, [cluster.access], lambda keys: None)


class Slots:
    """A site of three slots, and the clusters of their journals."""

    def __init__(self, folder: Path) -> None:
        self.folders = [slot_folder(folder, slot) for slot in range(3)]
        for other in self.folders[1:]:
            shutil.copytree(folder, other, ignore=shutil.ignore_patterns("slots"))
        self.before = kept(folder)["names"]
        self.clusters = [Cluster() for _ in self.folders]
        for one in self.clusters:
            one.access = dataclasses.replace(
                one.access, coordination=self.clusters[0].access.coordination
            )

    @property
    def accesses(self) -> list[MoveAccess]:
        return [one.access for one in self.clusters]


@pytest.mark.parametrize(
    ("point", "times"),
    [("move.piece", 1), ("move.piece", 20), ("move.in", 1), ("move.given", 1), ("move.given", 2)],
)
async def test_no_node_takes_a_slot_before_all_have_moved_in_however_often_it_is_cut_short(
    point: str, times: int, folder: Path, cut: Cut
) -> None:
    slots, seen = Slots(folder), list[int]()
    await cut.after(times, point, move_in, folder, slots.accesses)
    is_given = point == "move.given"
    # Whoever of the site's nodes starts now ends with the reason.
    with pytest.raises(SlotReserved, match="cluster begin` was not finished"):
        await slots.clusters[2].taken()
    # The folder's own node does not start once a slot may be another's.
    assert all((one / MOVED).exists() for one in slots.folders) == (point != "move.piece")
    if is_given:
        await slots.clusters[0].taken("paris-b")
    moved = await move_in(folder, slots.accesses, seen.append)
    assert (moved == 0) == (point != "move.piece")
    assert seen == sorted(seen)
    for one in slots.clusters:
        assert content(await one.taken())["names"] == slots.before
    with pytest.raises(MoveRefused, match="nothing may write over it"):
        await move_in(folder, slots.accesses, seen.append)


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("point", ["move.out", "move.arrived"])
async def test_all_slots_move_out_also_if_the_move_is_cut_short(
    point: str, times: int, folder: Path, cut: Cut
) -> None:
    slots = Slots(folder)
    await move_in(folder, slots.accesses, lambda keys: None)
    await cut.after(times, point, move_out, folder, slots.accesses)
    await move_out(folder, slots.accesses, lambda keys: None)
    assert [kept(one)["names"] for one in slots.folders] == [slots.before] * 3
    assert not any((one / MOVED).exists() for one in slots.folders)


async def test_slots_that_have_moved_out_do_not_come_into_another_folder(
    folder: Path, cut: Cut, tmp_path: Path
) -> None:
    slots = Slots(folder)
    await move_in(folder, slots.accesses, lambda keys: None)
    await cut.after(2, "move.out", move_out, folder, slots.accesses)
    with pytest.raises(MoveRefused, match="before: start that node"):
        await move_out(tmp_path / "elsewhere", slots.accesses, lambda keys: None)
    await move_out(folder, slots.accesses, lambda keys: None)


async def test_a_slot_whose_state_is_missing_moves_none(folder: Path) -> None:
    slots = Slots(folder)
    shutil.rmtree(slots.folders[1] / STATE)
    with pytest.raises(MoveRefused, match="there is no state in"):
        await move_in(folder, slots.accesses, lambda keys: None)
    assert [await one.journal.ownership() for one in slots.clusters] == [None] * 3
