"""What comes back where the log has named messages in another order. Upper case: named."""

from __future__ import annotations

import pytest

from relay.packing.returned_apart import ReturnedApart
from relay.packing.returned_prefix import Returned, TailEntry

LOGGED, MAYBE, NEW = Returned.LOGGED, Returned.MAYBE_LOGGED, Returned.NEW


def compared(logged: str, surely: int = 0, *, lacks_some: bool = False) -> ReturnedApart:
    tail = [TailEntry(one.encode(), False, properties=one.encode()) for one in logged]
    return ReturnedApart(tail, surely, bytes.isupper, log_lacks_some=lacks_some)


def take(returned: ReturnedApart, came: str) -> list[Returned]:
    each = [one.encode() for one in came]
    return returned.take(each, each)


def test_named_ones_are_told_by_their_like_in_any_order() -> None:
    returned = compared("ABCD")
    assert take(returned, "CABDE") == [LOGGED] * 4 + [NEW]
    assert not returned.over
    assert returned.fresh() == []
    assert returned.over


def test_a_named_one_that_the_log_has_tells_of_those_before_it() -> None:
    returned = compared("aBxCx")
    assert take(returned, "x") == []
    assert take(returned, "C") == [LOGGED, LOGGED]
    assert take(returned, "xD") == [LOGGED, NEW]


def test_a_named_one_that_the_log_has_tells_which_of_many_alike_comes_next() -> None:
    returned = compared("xxAxxBx")
    assert take(returned, "Axx") == [LOGGED] * 3
    assert take(returned, "Bxx") == [LOGGED] * 2
    assert returned.fresh() == [NEW]


def test_a_named_one_that_the_log_lacks_ends_what_it_has() -> None:
    returned = compared("xA")
    assert take(returned, "AB") == [LOGGED, NEW]
    assert take(returned, "x") == [NEW]


def test_of_what_nothing_tells_there_is_doubt_once_it_cannot_be_awaited() -> None:
    returned = compared("x")
    assert take(returned, "x") == []
    assert returned.fresh() == [MAYBE]
    impatient = compared("x")
    assert take(impatient, "xA") == [MAYBE, NEW]


def test_what_was_surely_not_acknowledged_is_known_at_the_next_sign() -> None:
    returned = compared("Ax", surely=1)
    assert take(returned, "x") == [LOGGED]
    assert take(returned, "x") == []
    assert returned.fresh() == [NEW]


def test_verdicts_come_in_the_order_of_delivery() -> None:
    returned = compared("Bx")
    assert take(returned, "x") == []
    assert returned.give_up_waiting() == [MAYBE]
    assert take(returned, "BC") == [LOGGED, NEW]


@pytest.mark.parametrize("came", ["A", "a"])
def test_what_a_log_lacks_that_lost_some_may_have_been_lost(came: str) -> None:
    returned = compared("", lacks_some=True)
    assert take(returned, came) + returned.fresh() == [Returned.MAYBE_LOST]


def test_of_no_tail_all_is_new_at_once() -> None:
    assert compared("").over
