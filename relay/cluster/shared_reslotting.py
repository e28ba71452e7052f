"""Change of the slots of a site whose nodes share its states, while no node runs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dedup.journal.slot_taking import until_known
from federation.slots import ONE_SLOT, SlotMap
from relay import crash_points
from relay.cluster.coordination import CoordinationAway
from relay.cluster.moving import (
    MOVED_OUT,
    MOVING_IN,
    MOVING_OUT,
    MoveAccess,
    MoveRefused,
    Progress,
    move_access,
    move_in,
    move_out,
    reserve,
)
from relay.cluster.shared_orders import ORDERS
from relay.node.site_folder import MOVED, RESLOT, STATE
from relay.node.slot_record import keep_slots, kept_slots, record_slots
from relay.operator.holds import HOLDS_FILE
from relay.reslot.reslotting import ReslotRefused, Reslotting, change_under_way
from relay.reslot.slot_change import SlotChange
from relay.retry import Backoff

if TYPE_CHECKING:
    from relay.cluster.site_servers import SharedServers

_MOST_FAILURES = 20
"""Number of questions to ZooKeeper in a row that may fail."""
_MOVING = (MOVING_IN, MOVING_OUT, MOVED_OUT)
"""Owners of slots whose states are not the nodes'."""


@dataclass(frozen=True, slots=True)
class SharedReslotting:
    """Change of the slots of a site whose nodes share its states: all move into the site's folder
    here, are changed there, and move back. A change that was cut short goes on at the next run,
    with the same folder. `report` is called with what is waited for.
    """

    reslotting: Reslotting
    servers: SharedServers
    report: Callable[[str], None]

    async def present(self) -> SlotMap:
        """Return the slots that the states in the keyspace are of. Raises ReslotRefused if there
        are none, JournalRefused, NodeStopped.
        """
        recorded = await self.servers.recorded_slots(self.report)
        if recorded is not None:
            return recorded
        if await self.servers.has_state(self.report):
            return ONE_SLOT
        raise ReslotRefused(
            "its cluster has no states yet: a site that has not run takes its slots from the mesh"
            " file, and `isthmus cluster begin` moves the state of a site with one node"
        )

    async def running(self) -> Sequence[str]:
        """Return the names of the nodes that run. A lost connection to ZooKeeper is waited for, as
        by nodes; after some 30 s raises CoordinationAway.
        """
        backoff, failures = Backoff(0.1, 2.0, random.random), 0
        while True:
            try:
                return await self.servers.coordination().names("nodes")
            except CoordinationAway as away:
                failures += 1
                if failures > _MOST_FAILURES:
                    raise
                if failures == 1:
                    self.report(f"ZooKeeper: {away}")
                await asyncio.sleep(backoff.delay_s(failures))

    async def is_under_way(self) -> bool:
        """Return True if the change was begun: the states are not the nodes' at present. Raises as
        `present`.
        """
        return any(node in _MOVING for node in await self._owners(await self.present()))

    async def run(self, progress: Progress) -> int:
        """Make the change; return the number of keys moved back. Raises ReslotRefused, MoveRefused,
        NodeStopped, ExportFailed, StoreError, StateError, CoordinationAway, OSError.
        """
        folder, new = self.reslotting.folder, self.reslotting.new
        former = await self.present()
        self._check_folder(former)
        if former != new:
            await self._move_out(former, progress)
            if kept_slots(folder) != new or (folder / RESLOT).exists():
                await self._change(former, progress)
            crash_points.reach("reslot.here")
            begun = SlotChange(former, new).begun
            await reserve(folder, {n: await self._access(n) for n in begun})
            await self._go_on()
            await self.servers.record_slots(former, new, self.report)
            crash_points.reach("reslot.shared")
        return await move_in(folder, await self._accesses(new), progress)

    def _check_folder(self, present: SlotMap) -> None:
        """Raise ReslotRefused if the states here are amid another change."""
        folder, new = self.reslotting.folder, self.reslotting.new
        marked = change_under_way(folder)
        if marked is not None:
            begun = marked.new
        elif _is_here(folder) and kept_slots(folder) != present:
            begun = kept_slots(folder)
        else:
            return
        if begun != new:
            raise ReslotRefused(f"a change to {begun} was cut short: make that one first")

    async def _change(self, former: SlotMap, progress: Progress) -> None:
        """Change the states here; if nothing is to be changed, the nodes have theirs again."""
        folder = self.reslotting.folder
        try:
            await self.reslotting.run(progress)
        except ReslotRefused:
            if not (folder / RESLOT).exists() and kept_slots(folder) == former:
                await move_in(folder, await self._accesses(former), progress)
            raise

    async def _accesses(self, slots: SlotMap) -> Sequence[MoveAccess]:
        return [await self._access(n) for n in range(slots.count)]

    async def _access(self, slot: int) -> MoveAccess:
        return await move_access(self.servers, slot, self.report)

    async def _owners(self, slots: SlotMap) -> list[str]:
        """Return the names of who owns the slots; empty for nobody."""
        found = []
        for one in await self._accesses(slots):
            ownership = await until_known(one.journal.ownership, one.retry)
            found.append("" if ownership is None else ownership.owner.node)
        return found

    async def _move_out(self, former: SlotMap, progress: Progress) -> None:
        """Move the states out, unless they are here already."""
        folder = self.reslotting.folder
        if {*await self._owners(former)} == {MOVED_OUT}:
            if not _is_here(folder):
                raise MoveRefused("the states have moved into another folder: run this there")
            return
        if _is_here(folder):
            keep_slots(folder, self.reslotting.site, former)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            record_slots(folder, former)
        await move_out(folder, await self._accesses(former), progress)

    async def _go_on(self) -> None:
        """Let the orders that the nodes find be those of the folder, without the one to quiesce."""
        file = self.reslotting.folder / HOLDS_FILE
        if file.exists():
            await self.servers.write_fact(ORDERS, file.read_text(encoding="utf-8"), self.report)


def _is_here(folder: Path) -> bool:
    """Return True if a folder has states that have not moved into a cluster, also amid a change,
    when the first is not in its place for a moment.
    """
    return (folder / RESLOT).exists() or (
        (folder / STATE).exists() and not (folder / MOVED).exists()
    )
