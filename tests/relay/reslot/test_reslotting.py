"""States of other slots from the present ones: who has what, and changes that are cut short."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dedup.barrier import Barrier, Verdict
from dedup.identity import scope_prefix
from dedup.keys import place_prefix, places_of
from dedup.store import Changes
from federation.mesh import Mesh
from federation.mesh_file import load_mesh
from federation.slots import ONE_SLOT, SlotMap
from relay import crash_points
from relay.batches.batch import EVERY_SITE, BatchName, Flow, Place, Predecessor, Series
from relay.batches.name_set import NameSet
from relay.ledger.file_writer import FileWriters
from relay.ledger.rows import Event, LedgerRow, Stage
from relay.ledger_proof import FormerLedger, former_ledgers
from relay.log.recent_names import RecentNames
from relay.log.snapshot import LogSnapshot
from relay.node.bindings import StateLinkMemory, StateLogMemory, StatePackedLedger
from relay.node.machine import SystemClock, open_store
from relay.node.site_folder import MEMBERS, MOVED, RESLOT, REVISIONS, SLOT_MAP, STATE, slot_folder
from relay.node.slot_record import keep_slots, kept_slots, record_slots
from relay.node.start import NodeStopped
from relay.operator.holds import Holds, read_holds, write_holds
from relay.packing.packer_record import Acked, PackerRecord
from relay.reslot.reslotting import ReslotRefused, Reslotting
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


class Died(Exception):
    """End of a change at a crash point."""


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


@dataclass
class Site:
    """Folder of a site whose node has ended quiesced."""

    folder: Path
    mesh: Mesh
    writers: FileWriters

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

    def rows(self, slot: int) -> list[tuple[str, str]]:
        """Return state and event of each delivered row in a slot's files, in order."""
        import pyarrow.parquet as pq

        files = (slot_folder(self.folder, slot) / "ledger").glob("date=*/delivered-*.parquet")
        return [
            (row["state"], row["event"])
            for file in sorted(files)
            for row in pq.ParquetFile(file).read().to_pylist()
        ]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    writers = FileWriters()
    file = tmp_path / "mesh.yaml"
    file.write_text(MESH)
    yield Site(tmp_path / "sites" / "a", load_mesh(file), writers)
    await writers.close()


@pytest.mark.parametrize(
    ("former", "new"),
    [(ONE_SLOT, FOUR), (FOUR, ONE_SLOT), (FOUR, TWO), (TWO, FOUR), (TWO, SlotMap(2))],
)
async def test_each_slot_remembers_what_its_exchanges_had_before_and_no_other_exchange_s(
    former: SlotMap, new: SlotMap, site: Site
) -> None:
    site.make(former)
    assert await site.change(new) == 15
    assert kept_slots(site.folder) == new
    for slot in range(new.count):
        own = {name for name in EXCHANGES if new.of(name) == slot}
        before = {name for name in EXCHANGES if former.of(name) == slot and slot < former.count}
        with site.kept(slot) as kept:
            for exchange in EXCHANGES:
                known = {Verdict.DUPLICATE} if exchange in own else {Verdict.NEW}
                assert kept.verdicts(exchange) == known, (slot, exchange)
            # What the slot's log has is known besides.
            assert kept.settled() == own | before
            assert {one.exchange for one in kept.log().logged.series()} == own | before
            assert kept.log().last_seen == {("b", RUN): NOW_MS}
            loaded = kept.state.load()
            assert {ended.incarnation for _, ended in loaded.voids} == {
                b"ended%03d" % number for number in range(former.count)
            }
            # A place in another slot's log is none in this one.
            assert {flow.exchange for flow in loaded.flows} == own & before
            assert ("deliverer" in loaded.positions) == bool(before)
            assert kept.state.was_clean
            assert not kept.state.is_quiesced


async def test_a_slot_that_goes_on_with_its_log_has_nothing_before_its_end_to_do(
    site: Site,
) -> None:
    site.make(ONE_SLOT)
    await site.change(FOUR)
    with site.kept(0) as kept:
        record = PackerRecord.decode(kept.state.get(StatePackedLedger.KEY) or b"")
        assert (record.read_from, record.read_after) == (102, 9)
        assert record.acked == {"orders": Acked(RUN, 1)}
        mesh = site.reslotting(FOUR).mesh
        [strand] = [
            one
            for link in mesh.links_from("a")
            for one in mesh.strands(link)
            if one.slot_at("a") == 0
        ]
        assert StateLinkMemory(kept.state, strand.name, "b", SystemClock()).began() == 103
    with site.kept(2) as kept:
        assert kept.state.get(StatePackedLedger.KEY) is None
        assert not kept.log().blocks


async def test_the_former_states_end_in_order_in_the_ledger_and_the_new_ones_have_ids_of_their_own(
    site: Site,
) -> None:
    site.make(FOUR)
    await site.change(ONE_SLOT)
    for slot in range(4):
        state = (b"state of slot %03d" % slot).hex()
        rows = site.rows(slot)
        assert {of for of, _ in rows} == {state}
        assert rows[-1] == (state, Event.ENDED.name.lower())
    with site.kept(0) as kept:
        assert kept.state.get("state_id") != b"state of slot 000"
        assert former_ledgers(kept.state) == [
            # Its row of the exchange, if it had it, and its last.
            FormerLedger(slot, (b"state of slot %03d" % slot).hex(), 1 if slot == 1 else 2)
            for slot in range(4)
        ]
        assert kept.state.next_row(Stage.DELIVERED) == 0
    assert not any((slot_folder(site.folder, slot) / STATE).exists() for slot in (1, 2, 3))


async def test_a_slot_that_begins_has_the_files_of_the_first_and_the_site_goes_on(
    site: Site,
) -> None:
    site.make(ONE_SLOT)
    stale = slot_folder(site.folder, 2) / "gaps.json"
    stale.parent.mkdir(parents=True)
    stale.write_text("of an earlier slot")
    await site.change(FOUR)
    for slot in range(4):
        folder = slot_folder(site.folder, slot)
        assert (folder / MEMBERS).read_text() == '{"format": 1}'
        assert (folder / REVISIONS / "r1.json").exists()
        assert not (folder / "gaps.json").exists()
    assert read_holds(site.folder) == Holds(links=frozenset({"a-b"}))
    keep_slots(site.folder, "a", FOUR)


@pytest.mark.parametrize("point", [one for one in crash_points.POINTS if one.startswith("reslot.")])
@pytest.mark.parametrize(("former", "new"), [(ONE_SLOT, FOUR), (FOUR, TWO)])
async def test_a_change_that_was_cut_short_is_finished_and_no_node_starts_before(
    former: SlotMap, new: SlotMap, point: str, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.make(former)

    def dies(reached: str) -> None:
        if reached == point:
            raise Died

    with monkeypatch.context() as patched:
        patched.setattr(crash_points, "reach", dies)
        with pytest.raises(Died):
            await site.change(new)
    for slots in (former, new):
        with pytest.raises(NodeStopped, match="cut short: run `isthmus reslot` again"):
            keep_slots(site.folder, "a", slots)
    with pytest.raises(ReslotRefused, match="was cut short: make that one first"):
        await site.change(SlotMap(3))
    await site.change(new)
    for slot in range(new.count):
        with site.kept(slot) as kept:
            for exchange in EXCHANGES:
                has_it = new.of(exchange) == slot
                assert kept.verdicts(exchange) == {Verdict.DUPLICATE if has_it else Verdict.NEW}, (
                    slot,
                    exchange,
                )
    assert all(
        [event for _, event in site.rows(n)].count("ended") == 1 for n in range(former.count)
    )
    keep_slots(site.folder, "a", new)
    assert not (site.folder / RESLOT).exists()


async def test_nothing_is_forgotten_before_its_time_whichever_slot_is_older(site: Site) -> None:
    site.make(FOUR)
    with site.kept(2) as kept:
        # As old as its window allows: the next look empties the other generation.
        for hour in range(1, 3):
            kept.barrier.rotate_if_due(NOW_MS + hour * WINDOW_MS)
        deliver(kept, "late")
        kept.state.end(Commit(), is_quiesced=True)
    await site.change(ONE_SLOT)
    with site.kept(0) as kept:
        kept.barrier.rotate_if_due(NOW_MS + 3 * WINDOW_MS)
        for exchange in EXCHANGES:
            assert kept.verdicts(exchange) == {Verdict.DUPLICATE}, exchange


async def test_what_did_not_end_quiesced_or_is_not_there_is_not_changed(site: Site) -> None:
    with pytest.raises(ReslotRefused, match="has not run takes its slots from the mesh file"):
        await site.change(FOUR)
    site.make(FOUR)
    with pytest.raises(ReslotRefused, match=r"has 4 slots .* already"):
        await site.change(FOUR)
    with site.kept(2) as kept:
        kept.state.end(Commit())
    with pytest.raises(ReslotRefused, match="slot 2 did not end quiesced"):
        await site.change(TWO)
    with site.kept(2) as kept:
        kept.state.end(Commit(), is_quiesced=True)
        kept.state.begin(b"")  # and killed
    with pytest.raises(ReslotRefused, match="slot 2 did not end quiesced"):
        await site.change(TWO)
    (site.folder / MOVED).write_text("{}")
    with pytest.raises(ReslotRefused, match="moved into a cluster"):
        await site.change(TWO)
    assert json.loads((site.folder / SLOT_MAP).read_text())["count"] == 4
    assert not (site.folder / RESLOT).exists()


async def test_keys_of_nobody_knows_which_exchange_go_to_each_slot(site: Site) -> None:
    site.make(ONE_SLOT)
    with site.kept(0) as kept:
        changes = Changes()
        keys = [b"another." + number.to_bytes(16) for number in range(5)]
        judged = kept.barrier.judge(object(), keys, [b"8 bytes."] * 5, places("x"))
        kept.barrier.commit(judged, changes)
        kept.store.write(changes)
    await site.change(FOUR)
    for slot in range(4):
        with site.kept(slot) as kept:
            judged = kept.barrier.judge(object(), keys, [b"8 bytes."] * 5, [b"elsewhere."] * 5)
            assert set(judged.verdicts) == {Verdict.DUPLICATE}
