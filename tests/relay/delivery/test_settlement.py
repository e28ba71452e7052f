"""Positions never pass what is unsettled."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relay.batches.batch import BatchName, Flow, Place, Series
from relay.delivery.settlement import Point, Settlement


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


def is_after(one: Place, other: Place | None) -> bool:
    return one.offset > (other.offset if other else -1)


def through(settlement: Settlement) -> dict[str, int]:
    return {flow.origin: point.whole for flow, point in settlement.through().items()}


def meet(settlement: Settlement, n: int, flow: str, *, work: bool = True) -> Point:
    if work:
        settlement.outstanding(Flow(flow, "orders", 0), settlement.reader)
    return settlement.met(place(n, flow), n)


def test_of_each_flow_it_is_known_how_far_it_is_settled_whatever_others_do() -> None:
    settlement = Settlement(place(0))
    stuck, lively = Flow("a", "orders", 0), Flow("b", "orders", 0)
    assert through(settlement) == {}
    meet(settlement, 1, "a", work=False)
    meet(settlement, 2, "a")
    assert through(settlement) == {"a": 1}
    point = meet(settlement, 3, "b")
    meet(settlement, 4, "b")
    meet(settlement, 5, "a", work=False)
    assert through(settlement) == {"a": 1}
    settlement.settled(lively, point)
    assert through(settlement) == {"a": 1, "b": 3}
    settlement.idle(lively)
    assert through(settlement) == {"a": 1, "b": 4}
    settlement.idle(stuck)
    assert through(settlement) == {"a": 5, "b": 4}


def test_a_void_batch_says_nothing_of_its_flow() -> None:
    settlement = Settlement(None)
    meet(settlement, 1, "a")
    settlement.outstanding(Flow("a", "orders", 0), settlement.reader)
    void = settlement.met(place(2, "a"))
    settlement.settled(Flow("a", "orders", 0), void)
    assert through(settlement) == {}
    settlement.idle(Flow("a", "orders", 0))
    assert through(settlement) == {"a": 1}


def test_a_reader_that_is_sent_back_takes_back_what_was_said_of_later_batches() -> None:
    settlement = Settlement(place(0))
    meet(settlement, 1, "a", work=False)
    meet(settlement, 2, "b")
    busy = meet(settlement, 3, "c")
    meet(settlement, 4, "c")
    settlement.settled(Flow("c", "orders", 0), busy)
    meet(settlement, 5, "b", work=False)
    settlement.idle(Flow("b", "orders", 0))
    assert through(settlement) == {"a": 1, "b": 5, "c": 3}
    settlement.sent_back(place(2, "b"), is_after)
    assert through(settlement) == {"a": 1}
    assert settlement.times_sent_back == 1


def test_what_a_flow_had_in_hand_when_it_was_sent_back_moves_nothing_past_what_is_new() -> None:
    settlement = Settlement(place(0))
    flow = Flow("a", "orders", 0)
    first = meet(settlement, 1, "a")
    in_hand = meet(settlement, 3, "a")
    settlement.sent_back(place(2, "x"), is_after)
    new = meet(settlement, 4, "a")  # found to stand between 2 and 3: whatever its number
    settlement.settled(flow, first)
    settlement.settled(flow, in_hand)
    assert settlement.position(lambda p: p) == place(1)
    assert through(settlement) == {"a": 1}
    settlement.sent_back(place(2, "x"), is_after)
    settlement.settled(flow, in_hand)
    settlement.settled(flow, new)
    assert settlement.position(lambda p: p) == place(1)
    again = meet(settlement, 5, "a")
    settlement.settled(flow, again)
    assert settlement.position(lambda p: p) == place(5)
