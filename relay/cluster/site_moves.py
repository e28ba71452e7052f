"""Moves of all states of a site out of its cluster and into it, for commands while no node runs."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dedup.journal.slot_taking import until_known
from federation.slots import SlotMap
from relay.cluster.moving import (
    MOVED_OUT,
    MOVING_IN,
    MOVING_OUT,
    MoveAccess,
    MoveRefused,
    Progress,
    move_in,
    move_out,
)
from relay.cluster.shared_orders import ORDERS
from relay.cluster.site_servers import SharedServers
from relay.node.site_folder import MOVED, RESLOT, STATE
from relay.node.slot_record import keep_slots, kept_slots, record_slots
from relay.operator.holds import HOLDS_FILE
from relay.reslot.reslotting import ReslotRefused, Reslotting
from relay.retry import Backoff

_POLL_S = 0.05


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
        """Return the slots that the states in the keyspace are of. Raises JournalRefused,
        NodeStopped.
        """
        return await self.servers.kept_slots(self.reslotting.new, self.report)

    async def running(self) -> Sequence[str]:
        """Return the names of the nodes that run. Raises CoordinationAway."""
        return await self.servers.coordination().names("nodes")

    async def is_under_way(self) -> bool:
        """Return True if the change was begun: the states are not the nodes' at present. Raises as
        `present`.
        """
        folder, present = self.reslotting.folder, await self.present()
        owners = [
            await until_known(one.journal.ownership, one.retry)
            for one in await self._accesses(present)
        ]
        moving = {one.owner.node for one in owners if one} & {MOVING_IN, MOVING_OUT, MOVED_OUT}
        return _is_here(folder) if present != self.reslotting.new else bool(moving)

    async def run(self, progress: Progress) -> int:
        """Make the change; return the number of keys moved back. Raises ReslotRefused, MoveRefused,
        NodeStopped, ExportFailed, StoreError, StateError, CoordinationAway, OSError.
        """
        folder, new = self.reslotting.folder, self.reslotting.new
        former = await self.present()
        if former != new:
            await self._move_out(former, progress)
            try:
                if kept_slots(folder) != new or (folder / RESLOT).exists():
                    await self.reslotting.run(progress)
            except ReslotRefused:
                # Nothing was changed: the nodes go on with what they had.
                await move_in(folder, await self._accesses(former), progress)
                raise
            await self._go_on()
            await self.servers.record_slots(former, new)
        return await move_in(folder, await self._accesses(new), progress)

    async def _accesses(self, slots: SlotMap) -> Sequence[MoveAccess]:
        return [await move_access(self.servers, n, self.report) for n in range(slots.count)]

    async def _move_out(self, former: SlotMap, progress: Progress) -> None:
        """Move the states out, unless they are here already."""
        folder, accesses = self.reslotting.folder, await self._accesses(former)
        owners = [await until_known(one.journal.ownership, one.retry) for one in accesses]
        if all(one is not None and one.owner.node == MOVED_OUT for one in owners):
            if not _is_here(folder):
                raise MoveRefused("the states have moved into another folder: run this there")
            return
        if _is_here(folder):
            keep_slots(folder, self.reslotting.site, former)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            record_slots(folder, former)
        await move_out(folder, accesses, progress)

    async def _go_on(self) -> None:
        """Let the orders that the nodes find be those of the folder, without the one to quiesce."""
        known = await self.servers.fact(ORDERS)
        if known is not None:
            content = (self.reslotting.folder / HOLDS_FILE).read_text(encoding="utf-8")
            await self.servers.replace_fact(ORDERS, known, content)


def _is_here(folder: Path) -> bool:
    """Return True if a folder has states that have not moved into a cluster."""
    return (folder / STATE).exists() and not (folder / MOVED).exists()
