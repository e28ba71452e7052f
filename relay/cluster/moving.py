"""Moves of a site's state: from the folder of its only node into a cluster, and back.

A move takes the slot as a node does, under a name that no node may follow. So a move that is cut
short leaves a state that nobody runs on, and is made again as a whole.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from dedup.journal.journal import ROW_BYTES, Journal
from dedup.journal.journaled_store import JournaledStore
from dedup.journal.slot_copy import COPY, SlotCopy
from dedup.journal.slot_taking import SlotTaking
from dedup.store import Changes, Store
from federation import durable_file
from relay import crash_points
from relay.cluster.coordination import Coordination
from relay.node.machine import open_store
from relay.node.shared_files import drop_files, put_file, write_files
from relay.node.site_folder import MEMBERS, MOVED, REVISIONS, SLOT_MAP, STATE
from relay.operator.gaps import GAPS_FILE
from relay.operator.holds import HOLDS_FILE
from relay.state.node_state import POINT_TABLES, TABLES, VERSION_AT, Commit, NodeState

MOVING_IN = "(`isthmus cluster begin` was not finished: run it again)"
MOVED_IN = "isthmus cluster begin"
MOVED_OUT = "(`isthmus cluster end` has moved it into one node's folder)"
_WORK = "moving"
"""Folder of a move's copy of the journal, below the site's; of no worth once the move has ended."""
_ARRIVING = "state.arriving"

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


class MoveRefused(Exception):
    """The state is not to be moved; nothing was changed."""


async def move_in(folder: Path, slot: MoveAccess, progress: Progress) -> int:
    """Move the state in the site's `folder` into the journal; return its number of keys. The folder
    must be no other process's. Raises MoveRefused, StoreError, CoordinationAway.
    """
    if not (folder / STATE).exists():
        raise MoveRefused(f"there is no state in {folder / STATE}")
    if (folder / SLOT_MAP).exists():
        raise MoveRefused(
            f"the states in {folder} are of several slots, which a cluster cannot have yet"
        )
    await _check_nodes(slot.coordination)
    now = await slot.journal.ownership()
    if now is not None and now.owner.node == MOVED_IN and not (folder / MOVED).exists():
        _mark_moved(folder)
        return 0  # all but the mark was done
    if now is not None and now.owner.node not in (MOVING_IN, MOVED_OUT):
        raise MoveRefused(
            f"the cluster has a state of this site, last of {now.owner.node}: nothing may write"
            " over it"
        )
    source = open_store(folder / STATE)
    try:
        moved = await _written(folder, source, slot, progress)
    finally:
        source.close()
    crash_points.reach("move.in")
    # A node may follow this owner.
    async with _held(folder, slot, MOVED_IN):
        pass
    _mark_moved(folder)
    return moved


async def _written(folder: Path, source: Store, slot: MoveAccess, progress: Progress) -> int:
    """Write all that the source and the folder's files have into the journal."""
    async with _held(folder, slot, MOVING_IN) as store:
        for table in TABLES:
            store.clear_table(table)
        moved = 0
        for changes, keys in _pieces(source):
            await store.write_synced(changes)
            crash_points.reach("move.piece")
            moved += keys
            progress(moved)
        files = Commit()
        for file in _files_of(folder):
            put_file(files, folder, file)
        await NodeState(store).write_synced(files)
    return moved


async def move_out(folder: Path, slot: MoveAccess, progress: Progress) -> int:
    """Move the state from the journal into the site's `folder`; return its number of keys. No node
    can take the slot afterwards. Raises MoveRefused, StoreError, CoordinationAway.
    """
    if (folder / STATE).exists() and not (folder / MOVED).exists():
        raise MoveRefused(f"there is a state in {folder / STATE} already")
    await _check_nodes(slot.coordination)
    now = await slot.journal.ownership()
    if now is None or now.owner.node == MOVING_IN:
        raise MoveRefused("the cluster has no whole state of this site")
    arriving = folder / _ARRIVING
    shutil.rmtree(arriving, ignore_errors=True)
    moved = 0
    async with _held(folder, slot, MOVED_OUT) as store:
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
    return moved


@asynccontextmanager
async def _held(folder: Path, slot: MoveAccess, name: str) -> AsyncIterator[JournaledStore]:
    """Take the slot under a name, with a copy of the journal that goes in the end."""
    work = folder / _WORK
    copy = SlotCopy(open_store(work, COPY), TABLES, POINT_TABLES)
    try:
        taking = SlotTaking(slot.journal, name, slot.run(), slot.retry, is_command=True)
        owner = await taking.raise_epoch()
        await taking.read_and_begin(owner, copy)
        store = JournaledStore(copy, slot.journal, owner, slot.retry)
        try:
            yield store
            await store.synced()
        finally:
            await store.release()
    finally:
        copy.store.close()
    shutil.rmtree(work)


async def _check_nodes(coordination: Coordination) -> None:
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


def _files_of(folder: Path) -> list[Path]:
    """Return the files of a site's folder that go with the state."""
    single = (folder / MEMBERS, folder / GAPS_FILE, folder / HOLDS_FILE)
    return [*filter(Path.exists, single), *sorted((folder / REVISIONS).glob("*.json"))]


def _mark_moved(folder: Path) -> None:
    content = {"format": 1, "to": "the journal of the site's cluster"}
    durable_file.write(folder / MOVED, json.dumps(content), durable=True)
