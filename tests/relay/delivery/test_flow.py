"""A flow's next place and intent: exactly what was in doubt is flagged after a crash."""

from __future__ import annotations

import pytest

from relay.batches.batch import BatchName, Place, Series
from relay.state.flow_state import (
    Announced,
    BadFlowState,
    FlowMisuse,
    FlowState,
    announce,
    commit,
    decode_flow_state,
    encode_flow_state,
    in_doubt,
    withdraw,
)

SERIES = Series("paris", b"\x01" * 8, "orders", 0, ("tokyo",))
OTHER = Series("paris", b"\x02" * 8, "orders", 0, ())


def name(sequence: int, series: Series = SERIES) -> BatchName:
    return BatchName(series, sequence)


def place(sequence: int) -> Place:
    return Place(sequence * 10, name(sequence))


def test_what_is_announced_and_not_settled_is_in_doubt() -> None:
    state = announce(FlowState(), [Announced(name(0), 0, 200), Announced(name(1), 0, 50)])
    assert in_doubt(state) == {name(0): range(200), name(1): range(50)}
    state = commit(state, [Announced(name(0), 0, 120)], place(0), 120)
    assert in_doubt(state) == {name(0): range(120, 200), name(1): range(50)}
    state = commit(state, [Announced(name(0), 120, 200), Announced(name(1), 0, 50)], place(1), 50)
    assert in_doubt(state) == {}
    assert (state.next, state.entry) == (place(1), 50)


def test_a_flow_that_only_ever_committed_has_nothing_in_doubt() -> None:
    state = commit(FlowState(), [Announced(name(0), 0, 7)], place(0), 7)
    assert in_doubt(state) == {}
    assert state.announced == 0


def test_a_doubt_lasts_over_further_crashes_until_it_is_settled() -> None:
    state = announce(FlowState(), [Announced(name(0), 0, 256)])
    # The next process announces less of it, publishes, and dies too.
    state = announce(state, [Announced(name(0), 0, 10)])
    assert in_doubt(state) == {name(0): range(256)}
    state = commit(state, [Announced(name(0), 0, 10)], place(0), 10)
    assert in_doubt(state) == {name(0): range(10, 256)}


def test_a_doubt_about_a_batch_that_the_log_lost_ends_with_the_next_commit() -> None:
    state = announce(FlowState(), [Announced(name(5), 0, 9)])
    state = announce(state, [Announced(name(0, OTHER), 0, 4)])
    state = commit(state, [Announced(name(0, OTHER), 0, 4)], Place(7, name(0, OTHER)), 4)
    assert in_doubt(state) == {}


def test_no_more_is_announced_at_once_than_a_crash_may_flag() -> None:
    state = announce(FlowState(), [Announced(name(0), 0, 256)])
    with pytest.raises(FlowMisuse, match="257"):
        announce(FlowState(), [Announced(name(0), 0, 200), Announced(name(1), 0, 57)])
    with pytest.raises(FlowMisuse):
        announce(state, [Announced(name(1), 3, 3)])
    # What is in doubt already is not announced anew.
    assert announce(state, [Announced(name(0), 0, 256)]) == state


def test_what_was_certainly_not_sent_is_withdrawn() -> None:
    state = announce(FlowState(), [Announced(name(0), 10, 20), Announced(name(1), 0, 5)])
    state = withdraw(state, [Announced(name(0), 15, 20), Announced(name(1), 0, 5)])
    assert in_doubt(state) == {name(0): range(10, 15)}
    with pytest.raises(FlowMisuse, match="middle"):
        withdraw(state, [Announced(name(0), 12, 13)])


def test_the_bytes_say_the_same() -> None:
    states = [
        FlowState(),
        FlowState(place(3), 17),
        announce(
            FlowState(place(3), 0), [Announced(name(3), 0, 4), Announced(name(0, OTHER), 1, 2)]
        ),
    ]
    for state in states:
        data = encode_flow_state(state)
        assert decode_flow_state(data) == state
        with pytest.raises(BadFlowState):
            decode_flow_state(data + b"x")
        with pytest.raises(BadFlowState):
            decode_flow_state(data[:-1])
    with pytest.raises(BadFlowState):
        decode_flow_state(b"\x09\x00\x00")


@pytest.mark.parametrize("cut", range(0, 40, 5))
def test_a_run_of_chunks_with_kills_flags_only_what_was_announced(cut: int) -> None:
    """Each life announces, publishes a part, dies; the next begins at `next`."""
    total, chunk = 40, 10
    sent: list[tuple[int, bool]] = []
    state = FlowState()
    deaths = [cut, cut + 3, cut + 3]
    while state.entry < total:
        doubt = in_doubt(state).get(name(0), range(0))
        first = state.entry
        last = min(first + chunk, total)
        state = announce(state, [Announced(name(0), first, last)])
        died = False
        for entry in range(first, last):
            if deaths and len(sent) == deaths[0]:
                deaths.pop(0)
                died = True
                break
            sent.append((entry, entry in doubt))
        if not died:
            state = commit(state, [Announced(name(0), first, last)], place(0), last)
    unflagged = [entry for entry, flagged in sent if not flagged]
    assert sorted(set(unflagged)) == unflagged, "an unflagged message went out twice, or late"
    assert {entry for entry, _ in sent} == set(range(total))
