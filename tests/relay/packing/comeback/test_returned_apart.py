"""What comes back where the log has named messages in another order. Upper case: named."""

from __future__ import annotations

import pytest

from relay.packing.comeback.returned_apart import ReturnedApart
from relay.packing.comeback.returned_prefix import ReturnVerdict, TailEntry

LOGGED, MAYBE, NEW = ReturnVerdict.LOGGED, ReturnVerdict.MAYBE_LOGGED, ReturnVerdict.NEW


def compared(
    logged: str, surely: int = 0, *, named_then: str = "", lacks_some: bool = False
) -> ReturnedApart:
    """`named_then`: those that were named when they were packed, whatever they are now."""
    tail = [
        TailEntry(
            one.encode(),
            False,
            is_named=one.isupper() or one in named_then,
            properties=one.encode(),
        )
        for one in logged
    ]
    return ReturnedApart(tail, surely, bytes.isupper, log_lacks_some=lacks_some)


def take(returned: ReturnedApart, came: str) -> list[ReturnVerdict]:
    each = [one.encode() for one in came]
    return returned.take(each, each)


def test_named_ones_are_told_by_their_like_in_any_order() -> None:
    returned = compared("ABCD")
    assert take(returned, "CABDE") == [LOGGED] * 4 + [NEW]
    assert not returned.over
    assert returned.fresh() == []
    assert returned.over


def test_unnamed_ones_are_told_by_their_order_among_themselves() -> None:
    returned = compared("aBbCc", surely=3)
    assert take(returned, "CbBcd") == [LOGGED] * 4 + [NEW]


def test_a_named_one_tells_nothing_of_one_whose_like_was_acknowledged() -> None:
    # It may be the copy that is logged, or one that was published again behind it.
    returned = compared("Nx")
    assert take(returned, "N") == [LOGGED]
    assert take(returned, "x") + returned.fresh() == [MAYBE]


def test_what_was_named_when_it_was_packed_is_no_order_for_those_that_are_not_now() -> None:
    returned = compared("acb", named_then="abc")
    assert take(returned, "bcd") + returned.fresh() == [MAYBE, MAYBE, NEW]


def test_verdicts_come_in_the_order_of_delivery() -> None:
    returned = compared("Bxx")
    assert take(returned, "xB") == []
    assert returned.give_up_waiting() == [MAYBE, LOGGED]
    assert take(returned, "C") == [NEW]


@pytest.mark.parametrize("came", ["A", "a"])
def test_what_a_log_lacks_that_lost_some_may_have_been_lost(came: str) -> None:
    returned = compared("", lacks_some=True)
    assert take(returned, came) + returned.fresh() == [ReturnVerdict.MAYBE_LOST]


def test_of_no_tail_all_is_new_at_once() -> None:
    assert compared("").over
