"""Moves of a site's state into the journal of a cluster, and back into the folder of one node."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from dedup.journal.journal import SlotReserved
from dedup.journal.memory_journal import MemoryJournal, SlotRows
from dedup.journal.slot_copy import COPY, SlotCopy
from dedup.journal.slot_taking import SlotTaking, catch_up
from dedup.memory_store import MemoryStore
from dedup.store import Changes, Store
from federation.slots import SlotMap
from relay import crash_points
from relay.cluster.memory_coordination import MemoryCoordination, MemoryEnsemble
from relay.cluster.moving import MoveAccess, MoveRefused, move_in, move_out
from relay.node.machine import open_store
from relay.node.site_folder import MOVED, STATE
from relay.node.slot_record import keep_slots
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
    assert await move_in(folder, cluster.access, seen.append) == seen[-1]
    assert seen == sorted(seen)
    assert (folder / MOVED).exists()
    inside = content(await cluster.taken())
    files = {key for key in inside["state"] if key not in before["state"]}
    assert files == {b"mfile members.json", b"mfile ledger/revisions/r1.json"}
    assert {**inside, "state": {k: v for k, v in inside["state"].items() if k not in files}} == (
        before
    )
    (folder / "members.json").unlink()
    await move_out(folder, cluster.access, seen.append)
    assert kept(folder) == before
    assert (folder / "members.json").read_text() == "{}"
    assert not (folder / MOVED).exists()
    assert sorted(path.name for path in folder.iterdir()) == ["ledger", "members.json", "state"]
    with pytest.raises(SlotReserved, match="cluster end"):
        await cluster.taken()
    (folder / "members.json").unlink()
    await move_in(folder, cluster.access, seen.append)
    again = content(await cluster.copied())
    assert inside["state"].pop(b"mfile members.json") == b"{}"
    assert again == inside, "what was not in the folder any more stayed away"


@pytest.mark.parametrize("point", ["move.piece", "move.in", "move.out"])
async def test_a_move_that_was_cut_short_is_made_again_as_a_whole(
    point: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, cluster = kept(folder), Cluster()

    def dies(reached: str) -> None:
        if reached == point:
            raise Died

    async def moved(move: Callable[..., object]) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(crash_points, "reach", dies)
            with pytest.raises(Died):
                await move(folder, cluster.access, lambda keys: None)  # type: ignore[misc]

    if point != "move.out":
        await moved(move_in)
        assert kept(folder) == before
        with pytest.raises(SlotReserved, match="cluster begin` was not finished"):
            await cluster.taken()
    await move_in(folder, cluster.access, lambda keys: None)
    inside = content(await cluster.taken())
    assert inside["names"] == before["names"]
    if point == "move.out":
        await moved(move_out)
        with pytest.raises(SlotReserved):
            await cluster.taken()
    await move_out(folder, cluster.access, lambda keys: None)
    assert kept(folder)["names"] == inside["names"]


async def test_nothing_moves_while_a_node_runs(folder: Path) -> None:
    cluster = Cluster()
    node = MemoryCoordination(cluster.ensemble)
    await node.add("nodes/paris-b", b"{}")
    for move in (move_in, move_out):
        with pytest.raises(MoveRefused):
            await move(folder, cluster.access, lambda keys: None)
    assert await cluster.journal.ownership() is None
    assert not (folder / MOVED).exists()


async def test_nothing_is_written_over_a_state(folder: Path) -> None:
    cluster = Cluster()
    await cluster.taken()
    with pytest.raises(MoveRefused, match="last of paris-a: nothing may write over it"):
        await move_in(folder, cluster.access, lambda keys: None)
    with pytest.raises(MoveRefused, match="there is a state in"):
        await move_out(folder, cluster.access, lambda keys: None)


async def test_a_move_whose_mark_was_lost_is_marked(folder: Path) -> None:
    cluster = Cluster()
    await move_in(folder, cluster.access, lambda keys: None)
    (folder / MOVED).unlink()
    assert await move_in(folder, cluster.access, lambda keys: None) == 0
    assert (folder / MOVED).exists()
    with pytest.raises(MoveRefused, match="last of isthmus cluster begin"):
        await move_in(folder, cluster.access, lambda keys: None)


async def test_what_is_not_there_does_not_move(tmp_path: Path) -> None:
    cluster = Cluster()
    with pytest.raises(MoveRefused, match="there is no state"):
        await move_in(tmp_path, cluster.access, lambda keys: None)
    with pytest.raises(MoveRefused, match="no whole state"):
        await move_out(tmp_path, cluster.access, lambda keys: None)


async def test_one_slot_of_several_does_not_move_without_the_others(tmp_path: Path) -> None:
    keep_slots(tmp_path, "paris", SlotMap(2))
    open_store(tmp_path / STATE).close()
    cluster = Cluster()
    with pytest.raises(MoveRefused, match="are of several slots"):
        await move_in(tmp_path, cluster.access, lambda _: None)
    assert await cluster.journal.ownership() is None
