"""How far sites are with flows."""

from __future__ import annotations

from spark_audit.judge.positions import SEQUENCE_BITS, FlowAt, Positions, SeenIncarnation, in_order

FLOW = FlowAt("tokyo", "paris", "orders", 0)


def seen(incarnation: str, number: int, ms: int, state: str = "s1") -> SeenIncarnation:
    return SeenIncarnation("paris", incarnation, state, number, ms)


LIMA = SeenIncarnation("lima", "cc", "s2", 0, 1)


def test_incarnations_have_the_order_in_which_their_origin_wrote_of_them() -> None:
    found = Positions.of([seen("bb", 0, 50), seen("aa", 7, 90), LIMA], [])
    assert found.rank == {("paris", "bb"): 1, ("paris", "aa"): 2, ("lima", "cc"): 1}


def test_a_clock_that_was_set_back_does_not_change_their_order() -> None:
    rows = [seen("aa", 7, 20), seen("aa", 9, 22), seen("bb", 0, 50), seen("cc", 12, 3)]
    assert Positions.of(rows, []).rank == {
        ("paris", "bb"): 1,
        ("paris", "aa"): 2,
        ("paris", "cc"): 3,
    }


def test_of_state_folders_the_one_that_began_first_goes_first() -> None:
    rows = [seen("bb", 400, 50), seen("aa", 0, 90, "s2"), seen("cc", 500, 60)]
    assert [one.incarnation for one in in_order(rows)] == ["bb", "cc", "aa"]


def test_the_furthest_position_holds() -> None:
    both = [seen("bb", 0, 50), seen("aa", 7, 90)]
    found = Positions.of(both, [(FLOW, "aa", 3), (FLOW, "bb", 700), (FLOW, "aa", 1)])
    assert found.passed == {FLOW: 2 << SEQUENCE_BITS | 3}


def test_an_incarnation_that_its_origin_does_not_tell_of_says_nothing() -> None:
    assert Positions.of([], [(FLOW, "aa", 3)]).passed == {}
