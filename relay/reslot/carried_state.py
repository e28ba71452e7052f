"""State of a new slot but for its barrier, from the states of the former slots. Pure, but for the
store that is written.

All of the former slots' logs is delivered at the site and acknowledged by every neighbour, and
their packers have acknowledged all that they took. So a new slot needs no place in any other log
than its own, but all names: a neighbour may send a batch again that a former slot had.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from federation.mesh import Mesh
from relay.batches.batch import Place
from relay.batches.name_set import NameSet
from relay.ledger.rows import Stage
from relay.ledger_proof import FormerLedger, former_ledgers, put_former_ledgers
from relay.log.recent_names import RecentNames
from relay.log.snapshot import BadSnapshot, LogSnapshot
from relay.node.bindings import StateLogMemory, StatePackedLedger, link_began
from relay.node.start import RECOVERED_PAST
from relay.packing.packer_record import BadPackerRecord, PackerRecord
from relay.reslot.slot_change import SlotChange
from relay.state.flow_state import FlowState
from relay.state.node_state import Commit, Loaded, NodeState, StateUnreadable


@dataclass(frozen=True, slots=True)
class FormerState:
    """State of a former slot."""

    state: NodeState
    loaded: Loaded
    log: LogSnapshot

    @classmethod
    def of(cls, state: NodeState) -> FormerState:
        """Load a state. Raises StateTooNew, StateUnreadable."""
        kept = StateLogMemory(state).load()
        try:
            log = LogSnapshot(b"", NameSet(), ()) if kept is None else LogSnapshot.decode(kept)
        except BadSnapshot as error:
            raise StateUnreadable("snapshot of the log", str(error)) from error
        return cls(state, state.load(), log)


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrying:
    """Change of the slots of one site. `mesh` is the mesh with the new ones."""

    mesh: Mesh
    site: str
    change: SlotChange
    former: Sequence[FormerState]
    now_ms: int
    random_bytes: Callable[[int], bytes]

    def into(self, slot: int, state: NodeState) -> None:
        """Write the state of a new slot, which is not synced on return."""
        commit = Commit()
        settled = self._names(slot, lambda former: former.loaded.settled)
        if self.change.keeps_log(slot):
            # Its reader may begin before batches of exchanges that are in other slots now.
            settled.merge(self.former[slot].loaded.settled)
        commit.settled(settled, settled.series())
        for former in self.former:
            for origin, ended in former.loaded.voids:
                commit.void(origin, [ended])
        self._flows(slot, commit)
        put_former_ledgers(commit, self._ledgers())
        logged = self._names(slot, lambda former: former.log.logged)
        if self.change.keeps_log(slot):
            self._log_kept(slot, commit, logged)
        else:
            log_id = self.random_bytes(16)
            snapshot = LogSnapshot(log_id, logged, (), last_seen=self._last_seen())
            commit.put(StateLogMemory.KEY, snapshot.encode())
        state.begin(self.random_bytes(16))
        state.end(commit)

    def _names(self, slot: int, of: Callable[[FormerState], NameSet]) -> NameSet:
        """Return the names of former slots that belong to a new one."""
        found = NameSet()
        for number, former in enumerate(self.former):
            names = of(former)
            for series in names.series():
                if self.change.carries(number, slot, series.exchange, series.lane):
                    for first, end in names.intervals(series):
                        found.add_range(series, first, end)
        return found

    def _ledgers(self) -> list[FormerLedger]:
        """Return the ledgers of all former slots, and of those before."""
        found = [one for former in self.former for one in former_ledgers(former.state)]
        for slot, former in enumerate(self.former):
            state_id = (former.state.get("state_id") or b"").hex()
            rows = former.state.next_row(Stage.DELIVERED)
            found.append(FormerLedger(slot, state_id, rows, self.now_ms))
        return found

    def _last_seen(self) -> Mapping[tuple[str, bytes], int]:
        """Return when each incarnation was seen last in any former slot's log."""
        found: dict[tuple[str, bytes], int] = {}
        for former in self.former:
            for key, ms in former.log.last_seen.items():
                found[key] = max(ms, found.get(key, ms))
        return found

    def _flows(self, slot: int, commit: Commit) -> None:
        for number, former in enumerate(self.former):
            for flow, kept in former.loaded.flows.items():
                if not self.change.carries(number, slot, flow.exchange, flow.lane):
                    continue
                # A place in another log is none here.
                here = kept if number == slot else FlowState(intent=kept.intent)
                if here != FlowState():
                    commit.flow(flow, here)

    def _log_kept(self, slot: int, commit: Commit, logged: NameSet) -> None:
        """Go on with the log of the former slot of this number."""
        former = self.former[slot]
        for name, place in former.loaded.positions.items():
            commit.position(name, place)
        logged.merge(former.log.logged)
        snapshot = replace(former.log, logged=logged, last_seen=self._last_seen())
        commit.put(StateLogMemory.KEY, snapshot.encode())
        commit.put(RECOVERED_PAST, former.state.get(RECOVERED_PAST))
        recent = RecentNames()
        recent.load(snapshot.blocks, snapshot.points)
        last = recent.checked
        record = former.state.get(StatePackedLedger.KEY)
        if record is not None:
            # A packer without a record compares with all of its log.
            with contextlib.suppress(BadPackerRecord):
                after = _after(PackerRecord.decode(record), last)
                commit.put(StatePackedLedger.KEY, after.encode())
        if last is None:
            return
        for link in self.mesh.links_from(self.site):
            for strand in self.mesh.strands(link):
                if strand.slot_at(self.site) == slot:
                    key, value = link_began(strand.name, last.offset + 1)
                    commit.put(key, value)


def _after(record: PackerRecord, last: Place | None) -> PackerRecord:
    """Return the record of a packer that has nothing to compare with what egress hands out again:
    all messages up to the log's last place are acknowledged.
    """
    offset = 0 if last is None else last.offset
    return replace(record, read_from=offset, read_after=record.end, in_doubt=frozenset())
