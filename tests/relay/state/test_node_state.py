"""A node's memory: one commit is all or nothing, and everything comes back."""

from __future__ import annotations

import random

import pytest

from dedup.barrier import Barrier, Verdict
from dedup.keys import place_prefix, places_of
from dedup.memory_store import MemoryStore
from dedup.store import Changes
from relay.batches import varint
from relay.batches.batch import BatchName, Flow, Place, Predecessor, Series
from relay.batches.incarnation import VoidTable
from relay.batches.name_set import NameSet
from relay.ledger.rows import Event, LedgerRow, Stage, decode_row
from relay.state import node_state
from relay.state.flow_state import Announced, FlowState, announce
from relay.state.node_state import (
    FIRST_MARK,
    STATE,
    Commit,
    NodeState,
    RowRange,
    StateTooNew,
    StateUnreadable,
    StateVerdict,
    judge_state,
)

SERIES = Series("paris", b"\x01" * 8, "orders", 0, ("sydney", "tokyo"))
EVERY = Series("tokyo", b"\x02" * 8, "prices", 3, ())
FLOW = Flow("paris", "orders", 0)


def place(sequence: int, series: Series = SERIES) -> Place:
    return Place(sequence, BatchName(series, sequence))


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(node_state.TABLES)


def idle(recorded_ms: int, stage: Stage = Stage.DELIVERED) -> LedgerRow:
    return LedgerRow(stage, recorded_ms, Event.IDLE)


def test_everything_that_was_committed_comes_back(store: MemoryStore) -> None:
    state = NodeState(store)
    assert state.is_new
    state.begin(b"i" * 16)
    flow_state = announce(FlowState(place(4), 2), [Announced(place(4).name, 2, 9)])
    settled = NameSet()
    settled.add_range(SERIES, 0, 4)
    settled.add_range(SERIES, 7, 8)
    commit = Commit()
    commit.flow(FLOW, flow_state)
    commit.position("deliverer", place(4))
    commit.position("link:tokyo", place(5, EVERY))
    commit.settled(settled, [SERIES])
    commit.void("paris", [Predecessor(b"\x09" * 8, 41), Predecessor(b"\x08" * 8, -1)])
    commit.put("log_id", b"L" * 16)
    commit.row(idle(5))
    state.write(commit)

    again = NodeState(store.crash())
    loaded = again.load()
    assert not again.is_new
    assert not again.was_clean
    assert again.get("log_id") == b"L" * 16
    assert again.get("state_id") == b"i" * 16
    assert loaded.flows == {FLOW: flow_state}
    assert loaded.positions == {"deliverer": place(4), "link:tokyo": place(5, EVERY)}
    assert loaded.settled == settled
    assert {*loaded.voids} == {
        ("paris", Predecessor(b"\x09" * 8, 41)),
        ("paris", Predecessor(b"\x08" * 8, -1)),
    }
    assert [number for number, _ in again.rows(Stage.DELIVERED)] == [0]
    assert again.next_row(Stage.DELIVERED) == 1


def test_what_was_forgotten_does_not_come_back(store: MemoryStore) -> None:
    state = NodeState(store)
    names = NameSet()
    names.add_range(SERIES, 0, 4)
    commit = Commit()
    commit.position("link:tokyo", place(1))
    commit.settled(names, [SERIES])
    commit.put("revision", b"r")
    state.write(commit)
    names.forget(lambda series: True)
    commit = Commit()
    commit.position("link:tokyo", None)
    commit.settled(names, [SERIES])
    commit.put("revision", None)
    state.write(commit)
    loaded = state.load()
    assert loaded.positions == {}
    assert not loaded.settled
    assert state.get("revision") is None


async def test_a_folder_says_whether_its_node_ended_in_order(store: MemoryStore) -> None:
    state = NodeState(store)
    state.begin(b"i" * 16)
    commit = Commit()
    commit.row(idle(1))
    state.end(commit)
    await store.synced()
    store = store.power_cut()
    state = NodeState(store)
    assert state.was_clean
    assert state.next_row(Stage.DELIVERED) == 1
    state.begin(b"j" * 16)
    await store.synced()
    again = NodeState(store.power_cut())
    assert not again.was_clean
    assert again.get("state_id") == b"i" * 16, "the folder keeps its ID"


def test_a_newer_format_is_refused_with_what_to_do(store: MemoryStore) -> None:
    commit = Commit()
    commit.put("version", (node_state.STATE_VERSION + 1).to_bytes(4))
    store.write(commit.changes)
    with pytest.raises(StateTooNew, match="isthmus recover"):
        NodeState(store)


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        (STATE, b"f\x05pa", b""),
        (STATE, b"pdeliverer", b"\x01"),
        (node_state.NAMES, b"\x02abc", b""),
    ],
)
def test_a_record_that_cannot_be_read_is_named(
    store: MemoryStore, table: str, key: bytes, value: bytes
) -> None:
    changes = Changes()
    changes.put(table, key, value)
    store.write(changes)
    with pytest.raises(StateUnreadable, match="isthmus recover"):
        NodeState(store).load()


def test_rows_are_numbered_by_stage_as_they_are_written(store: MemoryStore) -> None:
    state = NodeState(store)
    dropped = Commit()
    dropped.row(idle(1))
    first, second = Commit(), Commit()
    first.row(idle(2))
    second.row(idle(3))
    second.row(idle(4, Stage.PACKED))
    second.row(idle(5))
    state.write(second)
    state.write(first)
    state = NodeState(store.crash())

    def recorded(stage: Stage, begin: int = 0) -> list[tuple[int, int]]:
        return [(number, decode_row(row).recorded_ms) for number, row in state.rows(stage, begin)]

    assert recorded(Stage.DELIVERED) == [(0, 3), (1, 5), (2, 2)]
    assert recorded(Stage.DELIVERED, 2) == [(2, 2)]
    assert recorded(Stage.PACKED) == [(0, 4)]
    commit = Commit()
    commit.delete_rows(RowRange(Stage.DELIVERED, 0, 2))
    state.write(commit)
    assert recorded(Stage.DELIVERED) == [(2, 2)]
    assert recorded(Stage.PACKED) == [(0, 4)]
    assert state.next_row(Stage.DELIVERED) == 3


@pytest.mark.parametrize(
    ("has_state", "position", "mark", "verdict"),
    [
        (False, None, None, StateVerdict.FIRST_START),
        (False, None, 0, StateVerdict.LOST),
        (False, None, 900, StateVerdict.LOST),
        (True, None, None, StateVerdict.OK),
        (True, 5, None, StateVerdict.OK),
        (True, None, FIRST_MARK, StateVerdict.OK),
        (True, 900, 900, StateVerdict.OK),
        (True, 901, 900, StateVerdict.OK),
        (True, 899, 900, StateVerdict.OLDER_THAN_MARK),
        (True, None, 900, StateVerdict.OLDER_THAN_MARK),
    ],
)
def test_a_state_that_is_gone_or_older_than_the_brokers_mark_is_lost(
    has_state: bool, position: int | None, mark: int | None, verdict: StateVerdict
) -> None:
    assert judge_state(has_state, position, mark) is verdict


@pytest.mark.parametrize("seed", range(10))
async def test_after_a_power_cut_place_identities_and_rows_agree(seed: int) -> None:
    """One write: never a place without what it delivered, nor a row without either."""
    chance = random.Random(seed)
    store = MemoryStore(node_state.TABLES)
    state = NodeState(store)
    state.begin(b"i" * 16)
    barrier = Barrier(store, 1000, meta_table=STATE)
    for n in range(20):
        key = b"prefix.." + n.to_bytes(16)
        places = places_of(place_prefix(b"batch"), n, n + 1)
        judgement = barrier.judge(FLOW, [key], [bytes(16)], places)
        commit = Commit()
        barrier.commit(judgement, commit.changes)
        commit.flow(FLOW, FlowState(place(0), n + 1))
        commit.row(idle(n))
        state.write(commit)
        if chance.random() < 0.2:
            await store.synced()
    store = store.power_cut(chance)
    state = NodeState(store)
    flow = state.load().flows.get(FLOW, FlowState())
    assert len(list(state.rows(Stage.DELIVERED))) == state.next_row(Stage.DELIVERED) == flow.entry
    barrier = Barrier(store, 1000, meta_table=STATE)
    for n in range(20):
        key = b"prefix.." + n.to_bytes(16)
        (verdict,) = barrier.judge(
            n, [key], [bytes(16)], places_of(place_prefix(b"batch"), n, n + 1)
        ).verdicts
        assert verdict is (Verdict.REPLAY if n < flow.entry else Verdict.NEW)


def test_what_a_site_says_of_anothers_run_does_not_take_the_place_of_its_own_word(
    store: MemoryStore,
) -> None:
    state = NodeState(store)
    for origin, end in (("sydney", 41), ("tokyo", -1)):
        commit = Commit()
        commit.void(origin, [Predecessor(b"\x09" * 8, end)])
        state.write(commit)
    table = VoidTable(state.load().voids)
    assert table.end_of("sydney", b"\x09" * 8) == 41
    assert table.end_of("tokyo", b"\x09" * 8) == -1


def test_the_end_of_a_run_as_earlier_versions_kept_it_is_read(store: MemoryStore) -> None:
    state = NodeState(store)
    commit = Commit()
    value = bytearray()
    varint.put_text(value, "sydney")
    varint.put(value, 42)
    commit.changes.put(STATE, b"v" + b"\x09" * 8, bytes(value))
    state.write(commit)
    assert state.load().voids == (("sydney", Predecessor(b"\x09" * 8, 41)),)
