"""Recovery of a state that a site's nodes share, once its journal is lost in part or whole.

The command takes the slot as a node does, under a name that no node may follow, and reads what is
left of the journal as that node would. A state that the node would go on with is given back as it
is. Else the state is rebuilt from the slot's log in a folder of the command's, and written into a
new journal in the former one's place. A recovery that is cut short is made again as a whole.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from dedup.journal.journal import JournalDamaged, JournalTooNew, Owner
from dedup.journal.journaled_store import JournaledStore
from dedup.journal.slot_copy import COPY, SlotCopy
from dedup.journal.slot_taking import SlotTaking, catch_up, until_known
from relay import crash_points
from relay.cluster.moving import (
    MoveAccess,
    MoveRefused,
    Progress,
    check_nodes,
    files_of,
    only,
    write_all,
)
from relay.log.open_gap import write_gaps
from relay.node.machine import open_store
from relay.node.recovery import LostSlot, Recovered, is_lost, rebuild_state
from relay.node.site_folder import node_folders, slot_folder
from relay.operator.gaps import GAPS_FILE
from relay.state.node_state import (
    POINT_TABLES,
    TABLES,
    NodeState,
    StateTooNew,
    StateUnreadable,
)

RECOVERING = "(`isthmus recover` was not finished: run it again)"
RECOVERED = "isthmus recover"
_WORK = "recovering"
"""Folder of a recovery below the site's; of no worth once the recovery has ended."""


@dataclass(frozen=True, slots=True)
class SharedRecovery:
    """Recovery of one slot of the site that has `folder` here, which no other process may use."""

    lost: LostSlot
    access: MoveAccess
    folder: Path
    record_slots: Callable[[], Awaitable[object]]
    """Way to have the keyspace say of which slots the states are, which may be lost as well."""

    async def run(self, progress: Progress) -> Recovered:
        """Rebuild the state and write it into a new journal. Raises MoveRefused, StoreError,
        SiteLogError, NodeStopped, CoordinationAway, OSError.
        """
        await check_nodes(self.access.coordination)
        before = await until_known(self.access.journal.ownership, self.access.retry)
        if before is not None and before.owner.is_command and before.owner.node != RECOVERING:
            raise MoveRefused(f"the state is a command's: {before.owner.node}")
        work = self.folder / _WORK
        shutil.rmtree(work, ignore_errors=True)
        owner = await self._taking(RECOVERING).raise_epoch_after(before)
        if reason := await self._why_not(owner, work / "found"):
            await self._give(owner)
            raise MoveRefused(reason)
        await self.record_slots()
        found = await self._replace(owner, work, progress)
        shutil.rmtree(work)
        return found

    async def _why_not(self, owner: Owner, folder: Path) -> str:
        """Return why the journal is not to be replaced; empty if its state is lost."""
        copy = _open_copy(folder)
        try:
            journal = self.access.journal
            await until_known(lambda: catch_up(journal, copy, owner), self.access.retry)
            if await is_lost(NodeState(copy.store), self.lost):
                return ""
        except (JournalDamaged, StateUnreadable):
            return ""
        except (JournalTooNew, StateTooNew) as newer:
            return str(newer)
        finally:
            copy.store.close()
        return "the journal has the state; a node reads it when it starts"

    async def _replace(self, owner: Owner, work: Path, progress: Progress) -> Recovered:
        files = work / "files"
        _gather_files(self.folder, self.lost.slot, files)
        rebuilt, copy = open_store(work / "rebuilt"), _open_copy(work / "copy")
        try:
            found = await rebuild_state(NodeState(rebuilt), self.lost, files)
            crash_points.reach("recover.rebuilt")
            anew = await self._taking(RECOVERING).renew(owner, copy)
            store = JournaledStore(copy, self.access.journal, anew, self.access.retry)
            try:
                await write_all(files, rebuilt, store, progress)
            finally:
                await store.release()
        finally:
            copy.store.close()
            rebuilt.close()
        crash_points.reach("recover.written")
        await self._give(anew)
        return found

    async def _give(self, owner: Owner) -> None:
        """Let the nodes take the slot."""
        await self._taking(RECOVERED).raise_epoch_after(only(owner))

    def _taking(self, name: str) -> SlotTaking:
        return SlotTaking(self.access.journal, name, self.access.run(), self.access.retry)


def _open_copy(folder: Path) -> SlotCopy:
    return SlotCopy(open_store(folder, COPY), TABLES, POINT_TABLES)


def _gather_files(folder: Path, slot: int, into: Path) -> None:
    """Copy the files that go with the state of a slot: the latest of each that a node has here.
    The gaps are none, as the state that has met them is lost.
    """
    into.mkdir(parents=True)
    for node in node_folders(folder):
        own = slot_folder(node, slot)
        for file in files_of(own):
            target = into / file.relative_to(own)
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists() or target.stat().st_mtime < file.stat().st_mtime:
                shutil.copy2(file, target)
    (into / GAPS_FILE).write_text(write_gaps([]))
