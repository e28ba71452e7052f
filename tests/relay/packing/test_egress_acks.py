"""Acknowledging egress: in order, never ahead of the log, the last batch held back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relay.packing.egress_acks import HOLD_S, HOLD_TAGS, EgressAcks


def test_a_batch_is_acknowledged_once_a_later_one_is_confirmed() -> None:
    acks = EgressAcks()
    for tag in (1, 2, 3):
        acks.packed(tag)
    first = acks.sealed()
    acks.packed(4)
    second = acks.sealed()
    assert acks.due(0.0) is None
    first.whole_sequence, first.confirmed_at = 0, 0.0
    assert acks.due(0.0) is None, "it is the last one that was confirmed: held"
    second.whole_sequence, second.confirmed_at = 1, 0.0
    assert acks.due(0.0) is first
    assert first.last_tag == 3
    assert acks.outstanding == 1


def test_a_held_stretch_is_due_after_a_while() -> None:
    acks = EgressAcks()
    acks.packed(1)
    only = acks.sealed()
    only.whole_sequence, only.confirmed_at = 0, 5.0
    assert acks.next_release() == 5.0 + HOLD_S
    assert acks.due(5.0 + HOLD_S / 2) is None
    assert acks.due(5.0 + HOLD_S) is only
    assert acks.next_release() is None


def test_a_stop_holds_nothing() -> None:
    acks = EgressAcks()
    acks.packed(1)
    only = acks.sealed()
    only.whole_sequence, only.confirmed_at = 0, 0.0
    assert acks.due(0.0, release=True) is only


def test_a_later_batch_that_is_confirmed_first_waits() -> None:
    acks = EgressAcks()
    acks.packed(1)
    first = acks.sealed()
    acks.packed(2)
    second = acks.sealed()
    second.whole_sequence, second.confirmed_at = 1, 0.0
    assert acks.due(100.0, release=True) is None
    first.whole_sequence, first.confirmed_at = 0, 0.0
    assert acks.due(100.0, release=True) is second


def test_a_dropped_message_waits_for_those_before_it_only() -> None:
    acks = EgressAcks()
    acks.passed(1)
    due = acks.due(0.0)
    assert due is not None
    assert (due.last_tag, due.whole_sequence) == (1, -1)
    acks.packed(2)
    acks.passed(3)
    batch = acks.sealed()
    acks.passed(4)
    assert acks.due(0.0) is None
    batch.whole_sequence, batch.confirmed_at = 0, 0.0
    due = acks.due(HOLD_S)
    assert due is not None
    assert due.last_tag == 4


def test_of_many_batches_confirmed_together_the_last_is_held_as_well() -> None:
    acks = EgressAcks()
    batches = []
    for number in range(4):
        for tag in range(number * HOLD_TAGS, (number + 1) * HOLD_TAGS):
            acks.packed(tag + 1)
        batches.append(acks.sealed())
    for number, batch in enumerate(batches):
        batch.whole_sequence, batch.confirmed_at = number, 0.0
    assert acks.due(0.0) is batches[-2]
    assert acks.outstanding == HOLD_TAGS


def test_dropped_messages_do_not_pile_up_behind_a_held_batch() -> None:
    acks = EgressAcks()
    acks.packed(1)
    batch = acks.sealed()
    batch.whole_sequence, batch.confirmed_at = 0, 0.0
    for tag in range(2, HOLD_TAGS + 1):
        acks.passed(tag)
    assert acks.due(0.0) is None
    acks.passed(HOLD_TAGS + 1)
    assert acks.due(0.0) is batch


@given(st.lists(st.sampled_from("pdsca"), max_size=60))
def test_acknowledgements_only_grow_and_never_pass_what_is_not_confirmed(
    steps: list[str],
) -> None:
    acks = EgressAcks()
    tag = acked = 0
    batch_of: dict[int, int] = {}  # packed tag -> number of its batch
    confirmed: set[int] = set()
    stretches = []
    now = 0.0
    for step in steps:
        now += 0.05
        if step == "p":
            tag += 1
            acks.packed(tag)
            batch_of[tag] = len(stretches)
        elif step == "d":
            tag += 1
            acks.passed(tag)
        elif step == "s" and any(n == len(stretches) for n in batch_of.values()):
            stretches.append(acks.sealed())
        elif step == "c" and len(confirmed) < len(stretches):
            number = min(set(range(len(stretches))) - confirmed)
            confirmed.add(number)
            stretches[number].whole_sequence = number
            stretches[number].confirmed_at = now
        elif step == "a":
            due = acks.due(now)
            if due is not None:
                assert due.last_tag > acked
                acked = due.last_tag
                assert all(batch_of[t] in confirmed for t in batch_of if t <= acked)
    assert acks.outstanding == tag - acked
