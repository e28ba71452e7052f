"""Positions never pass what is unsettled."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relay.batches.batch import BatchName, Flow, Place, Series
from relay.delivery.settlement import Settlement


def place(n: int, flow: str = "a") -> Place:
    return Place(n, BatchName(Series(flow, b"incarnat", "orders", 0, ()), n))


def test_with_nothing_outstanding_the_position_is_the_readers() -> None:
    settlement = Settlement(None)
    assert settlement.position(lambda place: place) is None
    settlement.met(place(1))
    assert settlement.position(lambda place: place) == place(1)


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
    assert settlement.position(lambda place: place) == place(0)
    settlement.idle(stuck)
    assert settlement.position(lambda place: place) == place(99, "b")


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
        position = settlement.position(lambda place: place)
        reached = position.offset if position else 0
        assert all(n > reached for n in waiting)
        if not waiting:
            assert reached == number


def test_a_reader_that_is_sent_back_takes_the_flows_that_had_come_further_with_it() -> None:
    settlement = Settlement(place(0))
    busy, slow, idle = Flow("a", "orders", 0), Flow("b", "orders", 0), Flow("c", "orders", 0)
    points = []
    for n, flow in ((1, idle), (2, slow), (3, busy), (4, busy), (5, busy)):
        before = settlement.reader
        points.append(settlement.met(place(n)))
        settlement.outstanding(flow, before)
    settlement.idle(idle)
    settlement.settled(busy, points[2])
    settlement.sent_back(place(2), lambda one, other: one.offset > (other.offset if other else -1))
    assert settlement.point_of(slow).place == place(1)
    assert settlement.point_of(busy).place == place(2)
    settlement.settled(busy, points[4])  # of what it had in hand, with something new before it
    settlement.idle(slow)
    assert settlement.position(lambda p: p) == place(2)
    before = settlement.reader
    new = settlement.met(place(3, "new"))
    settlement.outstanding(busy, before)
    settlement.settled(busy, new)
    assert settlement.position(lambda p: p) == place(3, "new")


def test_the_first_of_the_places_is_the_position_wherever_the_reader_met_them_again() -> None:
    settlement = Settlement(place(0))
    one, other = Flow("a", "orders", 0), Flow("b", "orders", 0)
    for n, flow in ((7, one), (5, other)):
        point = settlement.met(place(n))
        settlement.outstanding(flow, point)
    assert settlement.position(lambda p: p) == place(5)
    assert settlement.position(lambda p: None) is None
