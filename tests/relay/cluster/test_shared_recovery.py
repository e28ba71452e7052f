"""A state that a site's nodes share, rebuilt once its journal is lost in part or whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dedup.journal.journal import JournalDamaged, JournalSnapshot, Owner, SlotReserved
from dedup.journal.slot_copy import SlotCopy
from dedup.journal.slot_taking import catch_up
from dedup.store import Store
from relay import crash_points
from relay.cluster import moving
from relay.cluster.memory_coordination import MemoryCoordination
from relay.cluster.moving import MOVING_OUT, MoveRefused, move_in
from relay.cluster.shared_recovery import SharedRecovery
from relay.log.open_gap import write_gaps
from relay.node.recovery import LostSlot, Recovered
from relay.node.site_folder import REVISIONS
from relay.operator.gaps import GAPS_FILE
from relay.operator.holds import HOLDS_FILE
from relay.state.node_state import POINT_TABLES, TABLES, NodeState
from tests.relay.cluster.test_moving import Cluster, Died, content
from tests.relay.node.test_node import NAMES, Site


class SharedSite:
    """A site that has delivered some messages, whose state has moved into a cluster since."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.cluster = Cluster()
        self.folder = site.folder / "cluster"
        self.recorded = 0
        """Number of times that the slots were recorded."""

    async def begin(self, *numbers: int) -> None:
        async with self.site.running():
            self.site.from_paris(*numbers)
            await self.site.until_delivered(len(numbers))
        await move_in(self.site.folder, [self.cluster.access], lambda keys: None)

    async def recover(self) -> Recovered:
        async def record() -> None:
            self.recorded += 1

        lost = LostSlot("tokyo", self.site.book, brokers=self.site)
        recovery = SharedRecovery(lost, self.cluster.access, self.folder, record)
        return await recovery.run(lambda keys: None)

    async def identities(self) -> set[bytes]:
        """Keys at the barrier of a node that takes the slot."""
        store = await self.cluster.taken()
        return {key for table in POINT_TABLES for key, _ in store.scan(table)}

    def lose(self) -> None:
        """Lose the journal wholly, as with its keyspace."""
        self.cluster.rows.__init__()  # type: ignore[misc]


@pytest.fixture
async def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SharedSite:
    """Return a site that has delivered three messages."""
    monkeypatch.setattr(moving, "ROW_BYTES", 1)  # a row for each key
    made = SharedSite(Site(tmp_path, monkeypatch))
    await made.begin(1, 2, 3)
    return made


async def test_of_a_journal_that_is_gone_the_state_is_rebuilt_and_given_to_the_nodes(
    shared: SharedSite,
) -> None:
    before = await shared.identities()
    former = await shared.cluster.copied()
    assert len(before) == 3
    shared.lose()
    found = await shared.recover()
    assert (found.settled_messages, found.doubtful_messages) == (3, 0)
    assert shared.recorded == 1
    # A copy that a node has of the former journal is no copy of the new one.
    assert await shared.identities() == before
    anew = await shared.cluster.copied()
    assert NodeState(anew).get("state_id") != NodeState(former).get("state_id")
    assert content(await followed(shared, former)) == content(anew)


async def followed(shared: SharedSite, copy: Store) -> Store:
    """Return a node's copy once it follows the journal."""
    await catch_up(shared.cluster.journal, SlotCopy(copy, TABLES))
    return copy


async def test_of_rows_that_are_gone_no_copy_is_taken_for_one_of_the_new_journal(
    shared: SharedSite,
) -> None:
    former, rows = await shared.cluster.copied(), shared.cluster.rows
    ownership = rows.ownership
    shared.lose()
    rows.ownership = ownership
    assert (await shared.recover()).settled_messages == 3
    anew = await shared.cluster.taken()
    assert NodeState(anew).get("state_id") != NodeState(former).get("state_id")
    assert content(await followed(shared, former)) == content(anew)


async def test_what_is_left_of_a_journal_never_counts(shared: SharedSite) -> None:
    rows, before = shared.cluster.rows, await shared.identities()
    last = rows.last
    assert last > 5
    await shared.cluster.journal.complete(JournalSnapshot(last, 2, 2, 9))
    # The table of owners is lost, and its epochs begin anew; one row is lost as well.
    rows.ownership = None
    del rows.rows[2]
    with pytest.raises(JournalDamaged, match="isthmus recover"):
        await shared.cluster.taken()
    await shared.recover()
    assert rows.last > last
    assert rows.rows[3], "what was left is there"
    for _ in range(4):  # epochs that rows are left of
        assert await shared.identities() == before
    assert {k for t in POINT_TABLES for k, _ in (await shared.cluster.copied()).scan(t)} == before


async def test_a_state_behind_the_brokers_mark_is_replaced_by_a_newer_one(
    shared: SharedSite,
) -> None:
    before = await shared.identities()
    # An older copy of the journal was put back.
    log = await shared.site.stream.open(mark_name=NAMES.deliverer_mark)
    shared.site.from_paris(4, 5)
    shared.site.from_paris(6)
    await log.store_mark(shared.site.stream.records[-2].offset)
    await log.close()
    found = await shared.recover()
    assert (found.settled_messages, found.doubtful_messages) == (5, 1)
    after = await shared.identities()
    assert before < after
    assert len(after) == 5


@pytest.mark.parametrize("point", ["move.piece", "recover.rebuilt", "recover.written"])
async def test_a_recovery_that_was_cut_short_is_made_again(
    shared: SharedSite, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await shared.identities()
    shared.lose()

    def dies(reached: str) -> None:
        if reached == point:
            raise Died

    with monkeypatch.context() as patched:
        patched.setattr(crash_points, "reach", dies)
        with pytest.raises(Died):
            await shared.recover()
    with pytest.raises(SlotReserved, match="isthmus recover` was not finished"):
        await shared.cluster.taken()
    if point == "recover.written":
        with pytest.raises(MoveRefused, match="the journal has the state"):
            await shared.recover()
    else:
        assert (await shared.recover()).settled_messages == 3
    assert await shared.identities() == before


async def test_the_files_of_the_state_come_from_the_nodes_that_had_them_last(
    shared: SharedSite,
) -> None:
    nodes = [shared.folder / "nodes" / name for name in ("tokyo-a", "tokyo-b")]
    for node, content_, written_s in zip(nodes, ("old", "new"), (1, 2), strict=True):
        (node / REVISIONS).mkdir(parents=True)
        (node / REVISIONS / f"{content_}.json").write_text("{}")
        for file in (HOLDS_FILE, GAPS_FILE):
            (node / file).write_text(content_)
            os.utime(node / file, (written_s, written_s))
    shared.lose()
    await shared.recover()
    found = dict(NodeState(await shared.cluster.taken()).values("file "))
    assert found == {
        f"file {HOLDS_FILE}": b"new",
        f"file {GAPS_FILE}": write_gaps([]).encode(),
        f"file {REVISIONS}/old.json": b"{}",
        f"file {REVISIONS}/new.json": b"{}",
    }


async def test_a_state_that_is_not_lost_stays_and_is_the_nodes(shared: SharedSite) -> None:
    before = await shared.cluster.copied()
    with pytest.raises(MoveRefused, match="the journal has the state; a node reads it"):
        await shared.recover()
    assert shared.recorded == 0
    state_id = NodeState(before).get("state_id")
    assert NodeState(await shared.cluster.taken()).get("state_id") == state_id


async def test_nothing_is_recovered_while_a_node_runs_or_a_command_has_the_state(
    shared: SharedSite,
) -> None:
    node = MemoryCoordination(shared.cluster.ensemble)
    await node.add("nodes/tokyo-b", b"{}")
    shared.lose()
    with pytest.raises(MoveRefused, match="tokyo-b runs: end all nodes"):
        await shared.recover()
    await node.remove("nodes/tokyo-b")
    await shared.cluster.journal.take(None, Owner(1, b"run", MOVING_OUT))
    with pytest.raises(MoveRefused, match="cluster end` was not finished"):
        await shared.recover()
