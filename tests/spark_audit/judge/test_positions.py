"""How far sites are with flows."""

from __future__ import annotations

from spark_audit.judge.positions import SEQUENCE_BITS, FlowAt, Positions

FLOW = FlowAt("tokyo", "paris", "orders", 0)


def test_incarnations_have_the_order_in_which_their_origin_wrote_of_them() -> None:
    found = Positions.of([("paris", "bb", 50), ("paris", "aa", 90), ("lima", "cc", 1)], [])
    assert found.rank == {("paris", "bb"): 1, ("paris", "aa"): 2, ("lima", "cc"): 1}


def test_the_furthest_position_holds() -> None:
    seen = [("paris", "bb", 50), ("paris", "aa", 90)]
    found = Positions.of(seen, [(FLOW, "aa", 3), (FLOW, "bb", 700), (FLOW, "aa", 1)])
    assert found.passed == {FLOW: 2 << SEQUENCE_BITS | 3}


def test_an_incarnation_that_its_origin_does_not_tell_of_says_nothing() -> None:
    assert Positions.of([], [(FLOW, "aa", 3)]).passed == {}
