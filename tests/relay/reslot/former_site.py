"""Folder of a site whose node has ended quiesced, with what each slot knows of its exchanges."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import cast

import pytest

from dedup.barrier import Barrier, Verdict
from dedup.identity import scope_prefix
from dedup.keys import place_prefix, places_of
from federation.mesh import Mesh
from federation.slots import SlotMap
from relay import crash_points
from relay.batches.batch import EVERY_SITE, BatchName, Flow, Place, Predecessor, Series
from relay.batches.name_set import NameSet
from relay.ledger.file import LedgerFile, frames
from relay.ledger.file_writer import FileWriter, FileWriters
from relay.ledger.rows import Event, LedgerRow, Stage, decode_row
from relay.log.recent_names import RecentNames
from relay.log.snapshot import LogSnapshot
from relay.node.bindings import StateLogMemory, StatePackedLedger
from relay.node.machine import open_store
from relay.node.site_folder import MEMBERS, REVISIONS, STATE, slot_folder
from relay.node.slot_record import record_slots
from relay.operator.holds import Holds, write_holds
from relay.packing.packer_record import Acked, PackerRecord
from relay.reslot.reslotting import Reslotting
from relay.state.flow_state import FlowState
from relay.state.node_state import STATE as STATE_TABLE
from relay.state.node_state import Commit, NodeState

MESH = """\
mesh: m
topology: custom
links: [{from: a, to: b, both: true}]
exchanges: [{name: orders}, {name: prices}, {name: news}]
sites: {a: {}, b: {}}
"""
EXCHANGES = ("orders", "prices", "news")
FOUR = SlotMap(4, {"orders": 0, "prices": 2, "news": 3})
TWO = SlotMap(2, {"orders": 1, "prices": 1, "news": 0})
WINDOW_MS = 3_600_000
RUN = b"run of b"
NOW_MS = 1_700_000_000_000


SHARED_POINTS = ("reslot.here", "reslot.shared")
"""Crash points of sites whose nodes share their states."""
CUT_POINTS = sorted(
    one for one in crash_points.POINTS if one.startswith("reslot.") and one not in SHARED_POINTS
)


class Died(Exception):
    """End of a change at a crash point."""


@contextmanager
def dying_at(point: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a change that the block makes end at a crash point."""

    def reach(reached: str) -> None:
        if reached == point:
            raise Died

    with monkeypatch.context() as patched:
        patched.setattr(crash_points, "reach", reach)
        with pytest.raises(Died):
            yield


def series(exchange: str) -> Series:
    return Series("b", RUN, exchange, 0, EVERY_SITE)


def key(exchange: str, number: int) -> bytes:
    return scope_prefix(exchange, None) + number.to_bytes(16)


def places(exchange: str) -> list[bytes]:
    return places_of(place_prefix(exchange.encode()), 0, 5)


class KeptState:
    """State of a slot, open until left."""

    def __init__(self, folder: Path) -> None:
        self.store = open_store(folder / STATE)
        self.state = NodeState(self.store)
        self.barrier = Barrier(self.store, WINDOW_MS, meta_table=STATE_TABLE)

    def __enter__(self) -> KeptState:
        return self

    def __exit__(self, *error: object) -> None:
        self.store.close()

    def verdicts(self, exchange: str) -> set[Verdict]:
        """Judge messages of an exchange that were delivered before the change."""
        keys = [key(exchange, number) for number in range(5)]
        judged = self.barrier.judge(object(), keys, [b"8 bytes."] * 5, [b"elsewhere."] * 5)
        self.barrier.release(judged)
        return set(judged.verdicts)

    def settled(self) -> set[str]:
        return {one.exchange for one in self.state.load().settled.series() if one.exchange}

    def log(self) -> LogSnapshot:
        kept = StateLogMemory(self.state).load()
        assert kept is not None
        return LogSnapshot.decode(kept)


def recent_of(exchanges: list[str]) -> RecentNames:
    recent = RecentNames()
    for number, exchange in enumerate(exchanges):
        recent.read_back(BatchName(series(exchange), 4), 100 + number, 1, 1, known=False)
    return recent


def deliver(kept: KeptState, exchange: str) -> None:
    """Write what a slot has of an exchange: delivered messages, names, a flow, and ledger rows."""
    commit, names = Commit(), NameSet()
    names.add_range(series(exchange), 0, 5)
    commit.settled(names, names.series())
    place = Place(100, BatchName(series(exchange), 4))
    commit.flow(Flow("b", exchange, 0), FlowState(place, 1))
    commit.row(LedgerRow(Stage.DELIVERED, NOW_MS, origin="b", exchange=exchange))
    keys = [key(exchange, number) for number in range(5)]
    judged = kept.barrier.judge(object(), keys, [b"8 bytes."] * 5, places(exchange))
    kept.barrier.commit(judged, commit.changes)
    kept.state.write(commit)


class KeptRows(FileWriters):
    """Writers of files that only keep the rows, by path: a process for each test takes seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, list[LedgerRow]] = {}

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[FileWriter]:
        yield cast(FileWriter, self)

    async def send(self, file: LedgerFile, data: bytes) -> None:
        if file.path not in self.rows:
            self.rows[file.path] = []  # the frame that begins a file
        else:
            self.rows[file.path] += map(decode_row, frames(BytesIO(data)))

    async def finished(self, file: LedgerFile) -> None:
        assert len(self.rows[file.path]) == file.last - file.first

    async def close(self) -> None: ...


@dataclass
class Site:
    """Folder of a site whose node has ended quiesced."""

    folder: Path
    mesh: Mesh
    writers: KeptRows

    def make(self, slots: SlotMap) -> None:
        (self.folder / REVISIONS).mkdir(parents=True)
        (self.folder / REVISIONS / "r1.json").write_text("{}")
        (self.folder / MEMBERS).write_text('{"format": 1}')
        record_slots(self.folder, slots)
        write_holds(self.folder, Holds(quiescing=True, links=frozenset({"a-b"})))
        for slot in range(slots.count):
            self._make_state(slot, [name for name in EXCHANGES if slots.of(name) == slot])

    def _make_state(self, slot: int, exchanges: list[str]) -> None:
        with self.kept(slot) as kept:
            kept.state.begin(b"state of slot %03d" % slot)
            kept.barrier.rotate_if_due(NOW_MS + slot)
            for exchange in exchanges:
                deliver(kept, exchange)
            recent = recent_of(exchanges)
            logged = NameSet()
            for exchange in exchanges:
                logged.add_range(series(exchange), 0, 5)
            log = LogSnapshot(b"log", logged, recent.encoded_blocks(), (), {("b", RUN): NOW_MS})
            StateLogMemory(kept.state).save(log.encode())
            commit = Commit()
            record = PackerRecord(b"own run.", 9, "boot", b"log", 3, 2, {"orders": Acked(RUN, 1)})
            commit.put(StatePackedLedger.KEY, record.encode())
            commit.position("deliverer", recent.checked)
            commit.void("b", [Predecessor(b"ended%03d" % slot, 7)])
            kept.state.end(commit, is_quiesced=True)

    def kept(self, slot: int) -> KeptState:
        return KeptState(slot_folder(self.folder, slot))

    def reslotting(self, slots: SlotMap) -> Reslotting:
        sites = {**self.mesh.sites, "a": replace(self.mesh.sites["a"], slots=slots)}
        numbers = itertools.count(1)
        return Reslotting(
            folder=self.folder,
            site="a",
            mesh=replace(self.mesh, sites=sites),
            now_ms=lambda: NOW_MS + 1000,
            random_bytes=lambda size: next(numbers).to_bytes(size),
            ledger_writers=self.writers,
        )

    async def change(self, slots: SlotMap) -> int:
        return await self.reslotting(slots).run(lambda keys: None)

    def rows(self, slot: int) -> list[tuple[str, Event]]:
        """Return state and event of each delivered row in a slot's files, in order."""
        folder = slot_folder(self.folder, slot) / "ledger"
        return [
            (Path(path).name.split("-")[1], row.event)
            for path, rows in sorted(self.writers.rows.items())
            for row in rows
            if Path(path).parent.parent == folder and row.stage is Stage.DELIVERED
        ]
