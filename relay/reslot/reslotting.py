"""States of other slots in the folder of a site's node, from the present ones, while no node runs.

reslot.json   {"format": 1, "former": {...}, "new": {...}, "is_built": false}

The file is there from the first change to the last, and no node starts meanwhile. Until the new
states are built beside the former ones, a change that was cut short begins again from these; from
then on the change only renames and deletes, each step once. Ledger rows of the former states are
exported, with a last row of each stage that says that the state ended in order.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from dedup.store import Store, StoreFailed
from federation import durable_file
from federation.mesh import Mesh
from federation.partitions import partition_of
from federation.slots import SlotMap
from relay import crash_points
from relay.ledger.file_writer import FileWriters
from relay.ledger.revisions import KeptRevisions
from relay.ledger.rows import ended_rows
from relay.ledger_export import LedgerExport
from relay.node.bindings import check_versions
from relay.node.machine import open_store
from relay.node.site_folder import (
    LEDGER,
    MEMBERS,
    MOVED,
    RESLOT,
    REVISIONS,
    SLOTS,
    STATE,
    slot_folder,
)
from relay.node.slot_record import kept_slots, record_slots, slots_as_text, slots_of_text
from relay.node.start import NodeStopped
from relay.operator.gaps import GAPS_FILE
from relay.operator.gaps import ORDERS as GAP_ORDERS
from relay.operator.holds import DRAINED_FILE, read_holds, write_holds
from relay.reslot.carried_memory import Progress, carry_memory, exchanges_by_prefix
from relay.reslot.carried_state import Carrying, FormerState
from relay.reslot.slot_change import SlotChange
from relay.state.node_state import Commit, NodeState

_NEXT = f"{STATE}.reslotted"
_FORMAT = 1
_BOOKS_CLOSED = "books closed"
"""Key of a state that has its last ledger rows."""


class _End(Enum):
    """End of a former slot's state."""

    NOT_THERE = "not there"
    UNDER_WAY = "under way"
    """State of a slot of whose log something may have been under way."""
    QUIESCED = "quiesced"
    BOOKS_CLOSED = "books closed"
    """The state has its last ledger rows, by a change that was cut short."""


class ReslotRefused(Exception):
    """The slots are not to be changed; nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reslotting:
    """Change of a site's slots in the `folder` of its node, which must be no other process's.
    `mesh` has the new slots.
    """

    folder: Path
    site: str
    mesh: Mesh
    now_ms: Callable[[], int]
    random_bytes: Callable[[int], bytes]
    ledger_writers: FileWriters

    @property
    def new(self) -> SlotMap:
        """Slots that the site is to have."""
        return self.mesh.sites[self.site].slots

    def change(self) -> SlotChange:
        """Return the change to make, which may be one that was cut short. Raises ReslotRefused,
        NodeStopped.
        """
        marked = change_under_way(self.folder)
        if marked is not None:
            if marked.new != self.new:
                raise ReslotRefused(
                    f"a change to {marked.new} was cut short: make that one first, then this one"
                )
            return marked
        former = kept_slots(self.folder)
        if not (self.folder / STATE).exists():
            raise ReslotRefused(
                f"there is no state in {self.folder / STATE}: a site that has not run takes its"
                " slots from the mesh file"
            )
        if (self.folder / MOVED).exists():
            raise ReslotRefused(
                "the state has moved into a cluster: `isthmus cluster end` brings it back first"
            )
        if former == self.new:
            raise ReslotRefused(f"the site has {former} already")
        return SlotChange(former, self.new)

    async def run(self, progress: Progress) -> int:
        """Make the change; return the number of keys carried over. `progress` is called with their
        number so far. Raises ReslotRefused, StoreError, StateError, ExportFailed, OSError.
        """
        change = self.change()
        carried = 0
        if not _is_built(self.folder):
            if why := self.why_not_quiesced(change):
                if _End.BOOKS_CLOSED not in self._ends(change):
                    (self.folder / RESLOT).unlink(missing_ok=True)  # by one that was cut short
                self.go_on()
                raise ReslotRefused(why)
            self._mark(change, is_built=False)
            crash_points.reach("reslot.begun")
            for slot in range(change.former.count):
                await self._end_books(slot)
            crash_points.reach("reslot.ended")
            carried = await self._build(change, progress)
            self._mark(change, is_built=True)
        crash_points.reach("reslot.built")
        for slot in range(change.new.count):
            self._place(slot)
        for slot in change.ended:
            shutil.rmtree(slot_folder(self.folder, slot) / STATE, ignore_errors=True)
        record_slots(self.folder, change.new)
        self.go_on()
        crash_points.reach("reslot.recorded")
        (self.folder / RESLOT).unlink()
        durable_file.sync(self.folder)
        return carried

    def go_on(self) -> None:
        """Withdraw the order to quiesce. Raises HoldsBroken, OSError."""
        holds = read_holds(self.folder)
        if holds.quiescing:
            write_holds(self.folder, replace(holds, quiescing=False))

    def _mark(self, change: SlotChange, *, is_built: bool) -> None:
        content = {
            "format": _FORMAT,
            "former": json.loads(slots_as_text(change.former)),
            "new": json.loads(slots_as_text(change.new)),
            "is_built": is_built,
        }
        durable_file.write(self.folder / RESLOT, json.dumps(content), durable=True)

    def why_not_quiesced(self, change: SlotChange) -> str:
        """Return the reason why the former slots are not to be changed: a state is not there, or
        something of its log was under way when its node ended; empty if there is none. Raises
        StoreError, StateError.
        """
        for slot, end in enumerate(self._ends(change)):
            if end is _End.NOT_THERE:
                return f"there is no state in {slot_folder(self.folder, slot) / STATE}"
            if end is _End.UNDER_WAY:
                return (
                    f"slot {slot} did not end quiesced: start the node with the former slots, and"
                    " run this while it runs"
                )
        return ""

    def _ends(self, change: SlotChange) -> list[_End]:
        """Return how the state of each former slot ended."""
        ends = []
        for slot in range(change.former.count):
            folder = slot_folder(self.folder, slot) / STATE
            ends.append(_end_of(folder) if folder.exists() else _End.NOT_THERE)
        return ends

    async def _end_books(self, slot: int) -> None:
        """Write a former state's last ledger rows, and export all rows."""
        folder = slot_folder(self.folder, slot)
        store = open_store(folder / STATE)
        try:
            state = NodeState(store)
            if state.get(_BOOKS_CLOSED) is None:
                commit = Commit()
                for row in ended_rows(self.now_ms(), "the site's slots were changed"):
                    commit.row(row)
                commit.put(_BOOKS_CLOSED, b"\x01")
                await state.write_synced(commit)
            export = LedgerExport(state, self.site, folder / LEDGER, self.ledger_writers)
            await export.roll(self.now_ms(), everything=True)
            await store.synced()
        finally:
            store.close()

    async def _build(self, change: SlotChange, progress: Progress) -> int:
        """Build the new states beside the former ones; return the number of keys carried over."""
        for slot in range(change.new.count):
            shutil.rmtree(slot_folder(self.folder, slot) / _NEXT, ignore_errors=True)
        carried = 0

        def note(keys: int) -> None:
            nonlocal carried
            carried = keys
            progress(keys)

        with ExitStack() as opened:
            former = self._open(opened, change.former.count, STATE)
            states = [FormerState.of(NodeState(store)) for store in former]
            new = self._open(opened, change.new.count, _NEXT)
            prefixes = exchanges_by_prefix(*self._scopes(states))
            carry_memory(former, new, change, prefixes, note)
            crash_points.reach("reslot.carried")
            carrying = Carrying(
                mesh=self.mesh,
                site=self.site,
                change=change,
                former=states,
                now_ms=self.now_ms(),
                random_bytes=self.random_bytes,
            )
            for slot, store in enumerate(new):
                carrying.into(slot, NodeState(store))
                await store.synced()
        for slot in change.begun:
            self._begin_folder(slot)
        for slot in range(change.new.count):
            durable_file.sync(slot_folder(self.folder, slot))
        for folder in (self.folder / SLOTS, self.folder):
            if folder.exists():
                durable_file.sync(folder)
        return carried

    def _open(self, opened: ExitStack, count: int, name: str) -> list[Store]:
        stores = []
        for slot in range(count):
            store = open_store(slot_folder(self.folder, slot) / name)
            opened.callback(store.close)
            stores.append(store)
        return stores

    def _scopes(self, states: Sequence[FormerState]) -> tuple[set[str], list[str]]:
        """Return the exchanges without partitions, and the origins (cluster IDs), that the site has
        known.
        """
        meshes = [self.mesh, *KeptRevisions(self.folder / REVISIONS).retired(self.mesh)]
        exchanges = {exchange for mesh in meshes for exchange in mesh.exchanges}
        origins = {site.cluster_id for mesh in meshes for site in mesh.sites.values()}
        # An identity at the barrier shows no key, so nobody knows its partition.
        partitioned = {
            exchange.name
            for mesh in meshes
            for exchange in mesh.exchanges.values()
            if exchange.partitions > 1
        }
        for state in states:
            for series in state.loaded.settled.series():
                exchanges.add(series.exchange)
                origins.add(series.origin)
                if partition_of(series.lane):
                    partitioned.add(series.exchange)
        return exchanges - partitioned, sorted(origins)

    def _begin_folder(self, slot: int) -> None:
        """Give a slot that begins what each slot has beside its state, as the first has it."""
        folder = slot_folder(self.folder, slot)
        for stale in (GAPS_FILE, DRAINED_FILE, MOVED):
            (folder / stale).unlink(missing_ok=True)
        shutil.rmtree(folder / GAP_ORDERS, ignore_errors=True)
        files = [self.folder / MEMBERS, *(self.folder / REVISIONS).glob("*.json")]
        for file in filter(Path.exists, files):
            copy = folder / file.relative_to(self.folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            durable_file.write(copy, file.read_text(encoding="utf-8"), durable=True)

    def _place(self, slot: int) -> None:
        """Put a built state in its place, unless it is there."""
        folder = slot_folder(self.folder, slot)
        if not (folder / _NEXT).exists():
            if not (folder / STATE).exists():
                raise StoreFailed(f"find {folder / _NEXT}", "put it back from a copy")
            return
        shutil.rmtree(folder / STATE, ignore_errors=True)
        crash_points.reach("reslot.placing")
        (folder / _NEXT).rename(folder / STATE)
        durable_file.sync(folder)


def _end_of(folder: Path) -> _End:
    """Return how a state ended. Raises StoreError, StateError."""
    store = open_store(folder)
    try:
        state = NodeState(store)
        check_versions(state)
        if state.get(_BOOKS_CLOSED) is not None:
            return _End.BOOKS_CLOSED
        return _End.QUIESCED if state.was_clean and state.is_quiesced else _End.UNDER_WAY
    finally:
        store.close()


def change_under_way(folder: Path) -> SlotChange | None:
    """Return the change that was begun in a node's folder, or None. Raises NodeStopped for a
    damaged file.
    """
    mark = _mark_of(folder)
    return None if mark is None else mark[0]


def _is_built(folder: Path) -> bool:
    mark = _mark_of(folder)
    return mark is not None and mark[1]


def _mark_of(folder: Path) -> tuple[SlotChange, bool] | None:
    """Return the change that was begun, and whether its states are built."""
    file = folder / RESLOT
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        former, new = (slots_of_text(json.dumps(content[name])) for name in ("former", "new"))
        return SlotChange(former, new), bool(content["is_built"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise NodeStopped(f"{file} cannot be read: {error!r}; put it back from a copy") from error
