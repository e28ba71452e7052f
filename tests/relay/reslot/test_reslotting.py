"""States of other slots from the present ones: who has what, and changes that are cut short."""

from __future__ import annotations

import json
import shutil

import pytest

from dedup.barrier import Verdict
from dedup.identity import scope_prefix
from dedup.store import Changes, StoreFailed
from federation.slots import ONE_SLOT, SlotMap
from relay.batches.batch import BatchName, Flow
from relay.batches.name_set import NameSet
from relay.ledger.rows import Event, Stage
from relay.ledger_proof import FormerLedger, former_ledgers
from relay.node.bindings import StateLinkMemory, StatePackedLedger
from relay.node.machine import SystemClock
from relay.node.site_folder import MEMBERS, MOVED, RESLOT, REVISIONS, SLOT_MAP, STATE, slot_folder
from relay.node.slot_record import keep_slots, kept_slots
from relay.node.start import RECOVERED_PAST, NodeStopped
from relay.operator.holds import Holds, read_holds
from relay.packing.packer_record import Acked, PackerRecord
from relay.reslot.reslotting import ReslotRefused
from relay.state.flow_state import Announced, FlowState
from relay.state.node_state import Commit
from tests.relay.reslot.former_site import (
    CUT_POINTS,
    EXCHANGES,
    FOUR,
    NOW_MS,
    RUN,
    TWO,
    WINDOW_MS,
    Site,
    deliver,
    dying_at,
    places,
    series,
)


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
        assert {of for of, _ in rows} == {state[:8]}
        assert rows[-1] == (state[:8], Event.ENDED)
    with site.kept(0) as kept:
        assert kept.state.get("state_id") != b"state of slot 000"
        assert former_ledgers(kept.state) == [
            # Its row of the exchange, if it had it, and its last.
            FormerLedger(
                slot, (b"state of slot %03d" % slot).hex(), 1 if slot == 1 else 2, NOW_MS + 1000
            )
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


@pytest.mark.parametrize(
    ("former", "new", "point"),
    [
        *((ONE_SLOT, FOUR, point) for point in CUT_POINTS),
        *((FOUR, TWO, point) for point in ("reslot.ended", "reslot.placing")),
    ],
)
async def test_a_change_that_was_cut_short_is_finished_and_no_node_starts_before(
    former: SlotMap, new: SlotMap, point: str, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.make(former)
    with dying_at(point, monkeypatch):
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
        [event for _, event in site.rows(n)].count(Event.ENDED) == 1 for n in range(former.count)
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


async def test_a_second_change_knows_the_ledgers_and_the_memory_of_the_first(site: Site) -> None:
    site.make(ONE_SLOT)
    await site.change(FOUR)
    for slot in range(4):
        with site.kept(slot) as kept:
            kept.state.end(Commit(), is_quiesced=True)
    await site.change(TWO)
    with site.kept(1) as kept:
        assert kept.verdicts("orders") == kept.verdicts("prices") == {Verdict.DUPLICATE}
        assert kept.verdicts("news") == {Verdict.NEW}
        first = (b"state of slot 000").hex()
        ledgers = former_ledgers(kept.state)
        assert [one.state_id for one in ledgers].count(first) == 1
        assert len(ledgers) == 5


async def test_messages_in_doubt_stay_so_in_another_slot(site: Site) -> None:
    site.make(ONE_SLOT)
    in_doubt = Announced(BatchName(series("prices"), 7), 0, 3)
    with site.kept(0) as kept:
        commit = Commit()
        commit.flow(Flow("b", "prices", 0), FlowState(None, 0, (in_doubt,)))
        kept.state.end(commit, is_quiesced=True)
    await site.change(FOUR)
    with site.kept(2) as kept:
        assert kept.state.load().flows == {
            Flow("b", "prices", 0): FlowState(intent=(in_doubt,)),
        }


async def test_identities_of_an_origin_and_of_exchanges_out_of_the_file_find_their_slot(
    site: Site,
) -> None:
    site.make(ONE_SLOT)
    gone = "gone"
    keys = {
        "orders": scope_prefix("orders", "b") + bytes(16),
        gone: scope_prefix(gone, None) + bytes(16),
    }
    with site.kept(0) as kept:
        commit, names = Commit(), NameSet()
        names.add_range(series(gone), 0, 1)
        commit.settled(names, names.series())
        for key_of in keys.values():
            commit.changes.put("barrier.a", key_of, b"8 bytes.elsewhere.")
        kept.state.end(commit, is_quiesced=True)
    new = SlotMap(4, {**FOUR.place, gone: 1})
    await site.change(new)
    for slot in range(4):
        with site.kept(slot) as kept:
            for exchange, key_of in keys.items():
                found = kept.store.get("barrier.a", key_of) is not None
                assert found == (new.of(exchange) == slot), (slot, exchange)


async def test_a_mark_up_to_which_a_log_was_eaten_stays_with_the_log(site: Site) -> None:
    site.make(TWO)
    with site.kept(0) as kept:
        commit = Commit()
        commit.put(RECOVERED_PAST, b"77")
        kept.state.end(commit, is_quiesced=True)
    await site.change(FOUR)
    for slot in range(4):
        with site.kept(slot) as kept:
            assert kept.state.get(RECOVERED_PAST) == (b"77" if slot == 0 else None)


async def test_a_change_that_began_and_was_never_due_is_over_once_it_is_refused(
    site: Site,
) -> None:
    site.make(FOUR)
    with site.kept(2) as kept:
        kept.state.end(Commit())
    (site.folder / RESLOT).write_text(
        json.dumps(
            {
                "format": 1,
                "former": {"count": 4, "place": dict(FOUR.place)},
                "new": {"count": 2, "place": dict(TWO.place)},
                "is_built": False,
            }
        )
    )
    with pytest.raises(ReslotRefused, match="slot 2 did not end quiesced"):
        await site.change(TWO)
    keep_slots(site.folder, "a", FOUR)


async def test_a_damaged_note_of_a_change_is_said(site: Site) -> None:
    site.make(FOUR)
    (site.folder / RESLOT).write_text("{")
    with pytest.raises(NodeStopped, match=r"reslot.json cannot be read"):
        await site.change(TWO)


async def test_a_new_state_that_is_gone_is_not_taken_for_one_in_its_place(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.make(ONE_SLOT)
    with dying_at("reslot.built", monkeypatch):
        await site.change(FOUR)
    shutil.rmtree(slot_folder(site.folder, 2) / "state.reslotted")
    with pytest.raises(StoreFailed, match="put it back from a copy"):
        await site.change(FOUR)
    assert (site.folder / RESLOT).exists()
