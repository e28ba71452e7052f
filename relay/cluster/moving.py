"""Moves of a site's state: from the folder of its only node into a cluster, and back.

A move takes the slot as a node does, under a name that no node may follow. So a move that is cut
short leaves a state that nobody runs on, and is made again as a whole. A state that moves in is
marked in its folder before any node may take it from the journal, and a state that moves out is in
its folder before the journal's is given up. No slot is given to the nodes before all have moved in.

moved.json      {"format": 1, "to": "the journal of the site's cluster", "is_there": true}
                `is_there`: false while the move is under way
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dedup.journal.journal import ROW_BYTES, Journal, Owner, Ownership
from dedup.journal.journaled_store import JournaledStore
from dedup.journal.slot_copy import COPY, SlotCopy
from dedup.journal.slot_taking import SlotTaking, until_known
from dedup.store import Changes, Store
from federation import durable_file
from relay import crash_points
from relay.cluster.coordination import Coordination
from relay.node.machine import open_store
from relay.node.shared_files import drop_files, put_file, write_files
from relay.node.site_folder import MEMBERS, MOVED, REVISIONS, STATE, slot_folder
from relay.operator.gaps import GAPS_FILE
from relay.operator.holds import HOLDS_FILE
from relay.retry import Backoff
from relay.state.node_state import POINT_TABLES, TABLES, VERSION_AT, Commit, NodeState

if TYPE_CHECKING:
    from relay.cluster.site_servers import SharedServers

MOVING_IN = "(`isthmus cluster begin` was not finished: run it again)"
MOVED_IN = "isthmus cluster begin"
MOVING_OUT = "(`isthmus cluster end` was not finished: run it again)"
MOVED_OUT = "(`isthmus cluster end` has moved it into one node's folder)"
_WORK = "moving"
"""Folder of a move's copy of the journal, below the site's; of no worth once the move has ended."""
_ARRIVING = "state.arriving"
_POLL_S = 0.05

Progress = Callable[[int], None]
"""Callback with the number of keys moved so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveAccess:
    """Way of a move to the site's servers. `run` returns random bytes, and `retry` is that of
    `SlotTaking`.
    """

    journal: Journal
    coordination: Coordination
    run: Callable[[], bytes]
    retry: Callable[[int], Awaitable[None]]


async def until_connected(servers: SharedServers) -> None:
    """Wait until ZooKeeper is reached. Raises CoordinationRefused."""
    coordination = servers.coordination()
    while coordination.steady_since is None:
        await asyncio.sleep(_POLL_S)


async def move_access(
    servers: SharedServers, slot: int, report: Callable[[str], None]
) -> MoveAccess:
    """Return a move's way to a slot's journal. `report` is called with what is waited for. Raises
    JournalRefused.
    """
    backoff = Backoff(0.1, 2.0, random.random)
    return MoveAccess(
        journal=await servers.journal(slot, report),
        coordination=servers.coordination(),
        run=lambda: os.urandom(16),
        retry=lambda failures: asyncio.sleep(backoff.delay_s(failures)),
    )


class MoveRefused(Exception):
    """The state is not to be moved, or made anew; nothing was changed."""


async def check_move_in(folder: Path, slots: Sequence[MoveAccess]) -> None:
    """Raise MoveRefused if the states of all slots in the site's `folder` are not to move in."""
    for number, slot in enumerate(slots):
        await _before_moving_in(slot_folder(folder, number), slot)


async def move_in(folder: Path, slots: Sequence[MoveAccess], progress: Progress) -> int:
    """Move the states of all slots in the site's `folder` into their journals; return their number
    of keys. The folder must be no other process's. Raises MoveRefused, StoreError,
    CoordinationAway.
    """
    folders = [slot_folder(folder, number) for number in range(len(slots))]
    each = list(zip(folders, slots, strict=True))
    owned = [await _before_moving_in(own, slot) for own, slot in each]
    moved = 0
    is_written = all(before is not None for before in owned)
    if not is_written or not all((own / MOVED).exists() for own in folders):
        # No node takes a slot before all are whole: first all are this command's.
        for n, (own, slot) in enumerate(each):
            async with _held(own, slot, MOVING_IN, owned[n]) as (_, owner):
                owned[n] = only(owner)
        for n, (own, slot) in enumerate(each):
            source = open_store(own / STATE)
            try:
                async with _held(own, slot, MOVING_IN, owned[n]) as (store, owner):
                    owned[n] = only(owner)
                    moved += await write_all(own, source, store, _beside(moved, progress))
            finally:
                source.close()
        for own in folders:
            _mark_moved(own, is_there=False)
    crash_points.reach("move.in")
    for n, (own, slot) in enumerate(each):
        before = owned[n]
        if before is not None and before.owner.node == MOVING_IN:
            # A node may follow this owner.
            async with _held(own, slot, MOVED_IN, before):
                pass
        crash_points.reach("move.given")
    for own in folders:
        _mark_moved(own, is_there=True)
    return moved


async def reserve(folder: Path, slots: Mapping[int, MoveAccess]) -> None:
    """Own the journals of these slots, whose states in the site's `folder` are to move in: no node
    takes one before that. Raises MoveRefused, SlotFenced, CoordinationAway.
    """
    for number, slot in slots.items():
        own = slot_folder(folder, number)
        before = await _before_moving_in(own, slot)
        if before is None or before.owner.node != MOVING_IN:
            async with _held(own, slot, MOVING_IN, before):
                pass


def _beside(moved: int, progress: Progress) -> Progress:
    """Return a callback for one slot, where the slots before had so many keys."""
    return lambda keys: progress(moved + keys)


async def _before_moving_in(folder: Path, slot: MoveAccess) -> Ownership | None:
    """Return the ownership that a slot's move in is to follow. Raises MoveRefused."""
    if not (folder / STATE).exists():
        raise MoveRefused(f"there is no state in {folder / STATE}")
    await check_nodes(slot.coordination)
    before = await until_known(slot.journal.ownership, slot.retry)
    is_marked = (folder / MOVED).exists()
    is_under_way = is_marked and not _is_there(folder)
    if before is None:
        if is_marked and not is_under_way:
            raise MoveRefused(_OUT_OF_DATE.format(folder=folder / STATE))
        return None
    if not is_under_way and before.owner.node not in (MOVING_IN, MOVED_OUT):
        raise MoveRefused(
            f"the cluster has a state of this site, last of {before.owner.node}: nothing may write"
            " over it"
        )
    if is_marked and (before.owner.node == MOVED_OUT or not is_under_way):
        raise MoveRefused(_OUT_OF_DATE.format(folder=folder / STATE))
    return before


_OUT_OF_DATE = (
    "the state in {folder} has moved into the cluster before, and is out of date: `isthmus cluster"
    " end` brings the present one"
)


async def write_all(folder: Path, source: Store, store: JournaledStore, progress: Progress) -> int:
    """Write all that the source and the folder's files have; return the number of keys."""
    for table in TABLES:
        store.clear_table(table)
    moved, state = 0, NodeState(store)
    for file in files_of(folder):
        # One a row: all together may be more than the journal takes in a row.
        commit = Commit()
        put_file(commit, folder, file)
        await state.write_synced(commit)
    for changes, keys in _pieces(source):
        await store.write_synced(changes)
        crash_points.reach("move.piece")
        moved += keys
        progress(moved)
    return moved


async def move_out(folder: Path, slots: Sequence[MoveAccess], progress: Progress) -> int:
    """Move the states of all slots from their journals into the site's `folder`; return their
    number of keys. No node can take a slot afterwards. Raises MoveRefused, StoreError,
    CoordinationAway.
    """
    moved = 0
    # The first slot's folder is the site's, whose node does not start before all is there.
    for number in reversed(range(len(slots))):
        own, slot = slot_folder(folder, number), slots[number]
        own.mkdir(parents=True, exist_ok=True)
        before = await until_known(slot.journal.ownership, slot.retry)
        is_out = before is not None and before.owner.node == MOVED_OUT
        if number and is_out and (own / STATE).exists() and not (own / MOVED).exists():
            continue  # by a move that was cut short
        moved += await _move_one_out(own, slot, _beside(moved, progress))
    return moved


async def _move_one_out(folder: Path, slot: MoveAccess, progress: Progress) -> int:
    """Move the state from the journal into a slot's `folder`; return its number of keys."""
    await check_nodes(slot.coordination)
    before = await until_known(slot.journal.ownership, slot.retry)
    if before is None:
        raise MoveRefused("the cluster has no state of this site")
    if before.owner.node == MOVING_IN:
        raise MoveRefused(
            "the cluster has no whole state of this site: `isthmus cluster begin` was not finished,"
            " run it again with the folder that it began with"
        )
    if before.owner.node == MOVED_OUT:
        raise MoveRefused("the state has moved into one node's folder before: start that node")
    is_here = (folder / STATE).exists() and not (folder / MOVED).exists()
    if is_here and before.owner.node != MOVING_OUT:
        raise MoveRefused(f"there is a state in {folder / STATE} already")
    async with _held(folder, slot, MOVING_OUT, before) as (store, owner):
        if not is_here:
            moved = await _bring(folder, store, progress)
        elif _is_same(folder, store):
            moved = 0  # brought by a move that was cut short
        else:
            raise MoveRefused(f"there is another state in {folder / STATE} already")
    async with _held(folder, slot, MOVED_OUT, only(owner)):
        pass
    return moved


async def _bring(folder: Path, store: JournaledStore, progress: Progress) -> int:
    """Bring the journal's state into the folder; return the number of keys."""
    arriving = folder / _ARRIVING
    shutil.rmtree(arriving, ignore_errors=True)
    moved = 0
    target = open_store(arriving)
    try:
        for changes, keys in _pieces(store):
            await target.write_synced(changes)
            moved += keys
            progress(moved)
        state = NodeState(target)
        write_files(folder, state)
        # Else a later move would bring back what the folder has no more by then.
        await drop_files(state)
    finally:
        target.close()
    crash_points.reach("move.out")
    shutil.rmtree(folder / STATE, ignore_errors=True)  # the one from before it moved in
    arriving.rename(folder / STATE)
    (folder / MOVED).unlink(missing_ok=True)
    durable_file.sync(folder)
    crash_points.reach("move.arrived")
    return moved


def _is_same(folder: Path, store: JournaledStore) -> bool:
    """Return True if the folder's state is the journal's."""
    here = open_store(folder / STATE)
    try:
        return NodeState(here).get("state_id") == NodeState(store).get("state_id")
    finally:
        here.close()


def only(owner: Owner) -> Ownership:
    """Return an ownership of this owner to follow."""
    return Ownership(owner, {}, b"")


@asynccontextmanager
async def _held(
    folder: Path, slot: MoveAccess, name: str, before: Ownership | None
) -> AsyncIterator[tuple[JournaledStore, Owner]]:
    """Take the slot under a name, if its ownership is still the one `before`, with a copy of the
    journal that goes in the end. Raises SlotFenced.
    """
    work = folder / _WORK
    shutil.rmtree(work, ignore_errors=True)
    copy = SlotCopy(open_store(work, COPY), TABLES, POINT_TABLES)
    try:
        taking = SlotTaking(slot.journal, name, slot.run(), slot.retry)
        owner = await taking.raise_epoch_after(before)
        await taking.read_and_begin(owner, copy)
        store = JournaledStore(copy, slot.journal, owner, slot.retry)
        try:
            yield store, owner
            await store.synced()
        finally:
            await store.release()
    finally:
        copy.store.close()
    shutil.rmtree(work)


async def check_nodes(coordination: Coordination) -> None:
    """Raise MoveRefused if a node of the site runs."""
    if running := await coordination.names("nodes"):
        raise MoveRefused(
            f"{', '.join(running)} {'runs' if len(running) == 1 else 'run'}: end all nodes of the"
            " site first"
        )


def _pieces(source: Store) -> Iterator[tuple[Changes, int]]:
    """Yield all that a store has, in writes of the size of a row, with the numbers of their keys.

    The version comes last: without it the state is none.
    """
    changes, keys, size = Changes(), 0, 0
    for table in TABLES:
        for key, value in source.scan(table):
            if (table, key) == VERSION_AT:
                continue
            changes.put(table, key, value)
            keys, size = keys + 1, size + len(key) + len(value)
            if size >= ROW_BYTES:
                yield changes, keys
                changes, keys, size = Changes(), 0, 0
    version = source.get(*VERSION_AT)
    if version is not None:
        changes.put(*VERSION_AT, version)
        keys += 1
    yield changes, keys


def files_of(folder: Path) -> list[Path]:
    """Return the files of a site's folder that go with the state."""
    single = (folder / MEMBERS, folder / GAPS_FILE, folder / HOLDS_FILE)
    return [*filter(Path.exists, single), *sorted((folder / REVISIONS).glob("*.json"))]


def _is_there(folder: Path) -> bool:
    """Return True if the move into the cluster that the folder is marked with was finished; the
    mark of a version before this one is.
    """
    return bool(json.loads((folder / MOVED).read_text()).get("is_there", True))


def _mark_moved(folder: Path, *, is_there: bool) -> None:
    content = {"format": 1, "to": "the journal of the site's cluster", "is_there": is_there}
    durable_file.write(folder / MOVED, json.dumps(content), durable=True)
