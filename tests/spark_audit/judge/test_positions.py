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


def moved_and_back() -> list[SeenIncarnation]:
    """Incarnations of an origin of one slot, then of four, then of one again; each state begins
    after all former ones ended, and those of several slots go on side by side.
    """
    return [
        SeenIncarnation("paris", f"{state}-{nth}", state, 100 * nth + offset, begin_ms + 50 * nth)
        for state, begin_ms, offset in (
            # Neither the state's ID nor the numbers of its rows give an order.
            ("ff", 1_000, 7),
            ("cc", 2_003, 0),
            ("aa", 2_000, 3),
            ("dd", 2_001, 0),
            ("bb", 2_002, 900),
            ("00", 3_000, 1),
        )
        for nth in range(2)
    ]


def test_incarnations_of_new_slots_come_after_those_of_all_former_ones() -> None:
    for rows in (moved_and_back(), moved_and_back()[::-1]):
        rank = Positions.of(rows, []).rank
        of_state = {
            state: [rank["paris", f"{state}-{nth}"] for nth in range(2)]
            for state in ("ff", "aa", "bb", "cc", "dd", "00")
        }
        assert of_state["ff"] == [1, 2]
        assert of_state["00"] == [11, 12]
        for state in ("aa", "bb", "cc", "dd"):
            assert of_state[state] == sorted(of_state[state])
            assert 2 < of_state[state][0] < 11


def place(found: Positions, incarnation: str, sequence: int) -> int:
    return found.rank["paris", incarnation] << SEQUENCE_BITS | sequence


def test_a_flow_that_moved_between_slots_is_passed_up_to_where_the_site_has_come() -> None:
    of_former = Positions.of(moved_and_back(), [(FLOW, "ff-1", 700)])
    # In the slot that the flow moved to, nothing of it is settled yet: pending, not lost.
    assert place(of_former, "bb-0", 0) > of_former.passed[FLOW]
    assert place(of_former, "ff-0", 900) < of_former.passed[FLOW]
    moved = Positions.of(moved_and_back(), [(FLOW, "bb-0", 2), (FLOW, "ff-1", 700)])
    # What the site has not, of the time before, will not come: lost, not pending.
    assert place(moved, "ff-1", 701) < moved.passed[FLOW]
    assert place(moved, "bb-0", 3) > moved.passed[FLOW]
    assert place(moved, "00-0", 0) > moved.passed[FLOW]
    back = Positions.of(moved_and_back(), [(FLOW, "00-0", 0), (FLOW, "bb-1", 5)])
    assert place(back, "bb-1", 6) < back.passed[FLOW]
    assert place(back, "00-0", 1) > back.passed[FLOW]


def test_a_flow_that_stayed_is_not_passed_by_what_other_slots_have_done() -> None:
    other = FlowAt("tokyo", "paris", "prices", 0)
    found = Positions.of(moved_and_back(), [(FLOW, "aa-0", 3), (other, "cc-1", 9)])
    assert place(found, "aa-0", 4) > found.passed[FLOW]


def test_rows_of_a_former_state_that_a_later_one_repeats_do_not_move_an_incarnation() -> None:
    again = SeenIncarnation("paris", "ff-1", "bb", 0, 2_001)
    assert Positions.of([again, *moved_and_back()], []).rank["paris", "ff-1"] == 2
