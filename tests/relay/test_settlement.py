"""Positions never pass what is unsettled."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relay.batch import BatchName, Flow, Place, Series
from relay.settlement import Settlement


def place(n: int, flow: str = "a") -> Place:
    return Place(n, BatchName(Series(flow, b"incarnat", "orders", 0, ()), n))


def test_with_nothing_outstanding_the_position_is_the_readers() -> None:
    settlement = Settlement(None)
    assert settlement.position is None
    settlement.met(place(1))
    assert settlement.position == place(1)


def test_a_flow_that_stands_holds_the_position_while_others_go_on() -> None:
    settlement = Settlement(place(0))
    stuck, lively = Flow("a", "orders", 0), Flow("b", "orders", 0)
    before = settlement.reader
    settlement.met(place(1))
    settlement.outstanding(stuck, before)
    for n in range(2, 100):
        before = settlement.reader
        point = settlement.met(place(n, "b"))
        settlement.outstanding(lively, before)
        settlement.settled(lively, point)
    settlement.idle(lively)
    assert settlement.position == place(0)
    settlement.idle(stuck)
    assert settlement.position == place(99, "b")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60), st.randoms())
def test_the_position_is_always_just_before_the_first_unsettled(
    steps: list[tuple[str, bool]], random: object
) -> None:
    settlement = Settlement(None)
    unsettled: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    points = {}
    for number, (name, settle) in enumerate(steps, start=1):
        flow = Flow(name, "x", 0)
        before = settlement.reader
        points[number] = settlement.met(place(number, name))
        settlement.outstanding(flow, before)
        unsettled[name].append(number)
        if settle:
            done = unsettled[name].pop(0)
            if unsettled[name]:
                settlement.settled(flow, points[done])
            else:
                settlement.idle(flow)
        waiting = [n for numbers in unsettled.values() for n in numbers]
        position = settlement.position
        reached = position.offset if position else 0
        assert all(n > reached for n in waiting)
        if not waiting:
            assert reached == number
