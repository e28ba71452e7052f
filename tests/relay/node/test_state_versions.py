"""A state folder in which a newer version has written: refused, with the part and what to do."""

from __future__ import annotations

import pytest

from dedup.memory_store import MemoryStore
from relay.batches.batch import Flow
from relay.node.bindings import check_versions
from relay.state import node_state
from relay.state.codec import encode_flow
from relay.state.flow_state import FlowState, encode_flow_state
from relay.state.node_state import Commit, NodeState, StateTooNew, StateUnreadable


@pytest.fixture
def state() -> NodeState:
    return NodeState(MemoryStore(node_state.TABLES))


def put(state: NodeState, key: str, value: bytes) -> None:
    commit = Commit()
    commit.put(key, value)
    state.write(commit)


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("log", b"\x02", "snapshot of the log has format 2, .* knows up to 1"),
        ("packer", b'{"version": 3}', "record of the packer has format 3, .* knows up to 2"),
        ("link:a-b", b'{"version": 4}', "position of link a-b has format 4, .* knows up to 3"),
    ],
)
def test_a_part_of_a_newer_format_is_refused_and_named(
    state: NodeState, key: str, value: bytes, part: str
) -> None:
    put(state, "link:a-a", b'{"version": 1}')
    put(state, key, value)
    with pytest.raises(StateTooNew, match=part) as refused:
        check_versions(state)
    assert "start the newer version again" in str(refused.value)


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b"\xff", b'{"version": "x"}'])
@pytest.mark.parametrize("key", ["packer", "link:a-b"])
def test_a_damaged_part_is_told_from_a_newer_one(state: NodeState, key: str, value: bytes) -> None:
    put(state, key, value)
    with pytest.raises(StateUnreadable, match="cannot be read"):
        check_versions(state)


def test_a_flow_of_a_newer_format_is_refused(state: NodeState) -> None:
    commit = Commit()
    newer = b"\x02" + encode_flow_state(FlowState())[1:]
    commit.changes.put(node_state.STATE, b"f" + encode_flow(Flow("paris", "orders", 0)), newer)
    state.write(commit)
    with pytest.raises(StateTooNew, match="record of a flow has format 2"):
        state.load()


def test_a_new_folder_has_nothing_to_refuse(state: NodeState) -> None:
    check_versions(state)
