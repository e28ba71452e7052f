"""Returns in any order, compared with the log by content and count. Upper case: named."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from relay.packing.comeback.returned_any_order import ReturnedInAnyOrder
from relay.packing.comeback.returned_prefix import ReturnVerdict, TailEntry


def compared(
    logged: str,
    surely: int = 0,
    *,
    named_then: str = "",
    expiring: str = "",
    lacks_some: bool = False,
) -> ReturnedInAnyOrder:
    """`named_then`: those that were named when they were packed, whatever they are now."""
    tail = [
        TailEntry(
            one.encode(),
            one in expiring,
            is_named=one.isupper() or one in named_then,
            properties=one.encode(),
        )
        for one in logged
    ]
    return ReturnedInAnyOrder(tail, surely, bytes.isupper, log_lacks_some=lacks_some)


def verdicts(returned: ReturnedInAnyOrder, came: str) -> str:
    """Verdicts as letters: N new, L logged, ? maybe logged, ! maybe lost."""
    each = [one.encode() for one in came]
    return "".join("NL?!"[verdict] for verdict in returned.take(each, each))


def test_distinct_messages_are_recognised_in_any_order_where_no_ack_was_sent() -> None:
    assert verdicts(compared("abcd", surely=3), "xdbyc") == "NLLNL"


def test_what_may_have_been_acknowledged_is_in_doubt_and_what_the_log_lacks_is_new() -> None:
    assert verdicts(compared("abcd", surely=1), "cxd") == "?NL"


def test_messages_alike_are_told_by_their_number() -> None:
    assert verdicts(compared("xxxxx", surely=2), "xxxxxxx") == "LL?????"
    assert verdicts(compared("abbc", surely=2), "cbxbba") == "LLN???"


def test_messages_behind_a_fresh_one_are_told_in_the_same_way() -> None:
    returned = compared("aab", surely=2)
    assert verdicts(returned, "a") == "L"
    assert not returned.over
    assert returned.fresh() == []
    assert returned.over
    assert returned.late(b"b", b"b") is ReturnVerdict.LOGGED
    assert returned.late(b"a", b"a") is ReturnVerdict.MAYBE_LOGGED
    assert returned.late(b"c", b"c") is ReturnVerdict.NEW


def test_a_named_message_is_told_by_its_like_however_often_it_comes() -> None:
    assert verdicts(compared("AB"), "BBAC") == "LLLN"


def test_what_was_named_by_an_earlier_mesh_file_stays_in_doubt() -> None:
    assert verdicts(compared("ab", surely=2, named_then="a"), "aab") == "??L"


def test_the_like_of_a_message_that_may_have_expired_is_in_doubt() -> None:
    assert verdicts(compared("ab", surely=2, expiring="a"), "ab") == "?L"


def test_a_log_that_lost_some_makes_doubtful_whatever_it_lacks() -> None:
    assert verdicts(compared("ab", surely=2, lacks_some=True), "aBxb") == "?!!?"
    assert not compared("", lacks_some=True).over


def test_no_verdict_is_held_back() -> None:
    returned = compared("ab")
    assert verdicts(returned, "x") == "N"
    assert returned.give_up_waiting() == []


def test_of_no_tail_all_is_new_at_once() -> None:
    assert compared("").over


def test_what_this_run_has_had_may_be_what_comes_again() -> None:
    returned = compared("a", surely=1)
    assert returned.notes_fresh
    returned.note(b"fresh")
    assert returned.late(b"fresh", b"fresh") is ReturnVerdict.MAYBE_LOGGED
    assert verdicts(compared(""), "xxyx") == "N?N?"
    # Acknowledged as logged, and the acknowledgement was too late.
    assert verdicts(compared("a", surely=1), "aa") == "L?"


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_nothing_is_lost_and_nothing_repeated_unflagged_in_whatever_order(
    data: st.DataObject,
) -> None:
    alphabet = data.draw(st.sampled_from(["a", "ab", "abcdefghijkl"]))
    logged = data.draw(st.text(alphabet, max_size=14))
    unacknowledged = data.draw(st.integers(0, len(logged)))
    surely = data.draw(st.integers(0, unacknowledged))
    unlogged = data.draw(st.text(alphabet, max_size=8))
    back = logged[len(logged) - unacknowledged :]
    came = "".join(data.draw(st.permutations(back + unlogged)))
    packed: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    for letter, verdict in zip(came, verdicts(compared(logged, surely), came), strict=True):
        (dropped if verdict == "L" else packed if verdict == "N" else Counter())[letter] += 1
    for letter, count in Counter(back + unlogged).items():
        logged_ones = back.count(letter)
        assert dropped[letter] <= logged_ones, "acknowledged, and not in the log"
        assert packed[letter] <= count - logged_ones, "packed twice, unflagged"
