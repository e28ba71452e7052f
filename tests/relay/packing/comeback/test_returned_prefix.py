"""What comes back from egress, compared with the log: against a model of the broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from relay.bulk_amqp.content_header import NONE_PRESENT, rewrite
from relay.bulk_amqp.field_table import entry, long_integer, long_string
from relay.packing.comeback.returned_prefix import (
    ReturnedPrefix,
    ReturnVerdict,
    TailEntry,
    digest_start,
    message_digest,
)


def tail(text: str, expiring: str = "", doubtful: str = "") -> list[TailEntry]:
    """`doubtful`: the last of these letters were logged for the second time."""
    again = len(text) - len(doubtful)
    assert text[again:] == doubtful
    return [
        TailEntry(digest(letter), letter in expiring, number >= again)
        for number, letter in enumerate(text)
    ]


def digest(letter: str) -> bytes:
    return message_digest(b"key", b"\0\0", letter.encode())


def compare(
    logged: str,
    comes_back: str,
    *,
    surely_unacked: int = 0,
    fresh: bool = True,
    expiring: str = "",
    log_lacks_some: bool = False,
) -> str:
    """Verdicts as letters: N new, L logged, ? maybe logged, ! maybe lost."""
    prefix = ReturnedPrefix(tail(logged, expiring), surely_unacked, log_lacks_some=log_lacks_some)
    verdicts = prefix.take([digest(letter) for letter in comes_back])
    verdicts += prefix.fresh() if fresh else prefix.give_up_waiting()
    return letters(verdicts)


def test_what_comes_again_after_some_of_it_was_logged_twice_is_not_taken_for_new() -> None:
    # b names itself: when all three came back the first time, it was not logged once more.
    prefix = ReturnedPrefix(tail("abcac", doubtful="ac"))
    assert letters(prefix.take([digest("a"), digest("b")])) == ""
    assert letters(prefix.take([digest("c"), digest("d")])) == "???N"
    assert letters(prefix.take([digest("a")])) == "?"
    assert not prefix.over
    assert letters(prefix.fresh()) == ""
    assert prefix.over


def letters(verdicts: Sequence[ReturnVerdict]) -> str:
    return "".join("NL?!"[verdict] for verdict in verdicts)


def test_a_message_is_the_same_whatever_the_order_of_its_headers() -> None:
    origin, number = entry(b"origin", long_string(b"paris")), entry(b"number", long_integer(7))
    sent, sorted_by_the_queue, other = (
        message_digest(b"key", rewrite(NONE_PRESENT, {}, fields), b"body")
        for fields in (origin + number, number + origin, number + number)
    )
    assert sent == sorted_by_the_queue != other


def test_what_the_log_has_is_recognised_and_the_rest_is_new() -> None:
    assert compare("abcdefg", "efghi", surely_unacked=1) == "LLLNN"


def test_a_log_that_knows_nothing_makes_everything_new() -> None:
    assert compare("", "abc") == "NNN"


def test_the_same_message_again_is_not_taken_for_an_old_one_that_may_have_been_acknowledged() -> (
    None
):
    assert compare("abc", "c") == "?"


def test_what_was_surely_not_acknowledged_decides() -> None:
    assert compare("abc", "c", surely_unacked=1) == "L"
    assert compare("xxx", "xxxx", surely_unacked=1) == "L??N"
    assert compare("xxx", "xxxx", surely_unacked=3) == "LLLN"
    assert compare("xxx", "xx", surely_unacked=2) == "LL"


def test_a_mismatch_behind_the_overlap_refutes_it() -> None:
    assert compare("abcd", "cdx") == "??N"
    assert compare("abcd", "cxd") == "NNN"


def test_periodic_messages_stay_in_doubt_only_where_both_beginnings_fit() -> None:
    assert compare("ababab", "ababab", surely_unacked=2) == "LL????"
    assert compare("ababab", "bab", surely_unacked=2) == "LLL"


def test_too_few_coming_back_refutes_a_beginning_that_wants_more() -> None:
    # "xx" came back, then something fresh: had three been unacknowledged, three would have come.
    assert compare("xxxxx", "xx", surely_unacked=1) == "L?"


def test_an_expired_message_may_be_missing() -> None:
    assert compare("abcde", "ade", surely_unacked=1, expiring="bc") == "LLL"
    assert compare("abcde", "ae", surely_unacked=1, expiring="bc") != "LL"


def test_a_queue_that_somebody_purged_is_judged_message_by_message() -> None:
    assert compare("abcde", "zb", surely_unacked=2) == "N?"


def test_a_log_that_lost_its_tail_makes_what_comes_back_doubtful() -> None:
    assert compare("abc", "bcde", surely_unacked=2, log_lacks_some=True) == "??!!"
    assert compare("", "de", log_lacks_some=True) == "!!"


def test_verdicts_come_as_soon_as_they_are_certain() -> None:
    prefix = ReturnedPrefix(tail("abcd"), 1)
    assert letters(prefix.take([digest("c")])) == "L"
    assert not prefix.over
    assert letters(prefix.take([digest("d")])) == "L"
    assert prefix.over
    assert letters(prefix.take([digest("d")])) == "N"


def test_a_doubt_waits_for_what_may_decide_it_and_for_no_longer() -> None:
    prefix = ReturnedPrefix(tail("abcd"))
    assert prefix.take([digest("b")]) == []
    assert prefix.undecided == 1
    assert letters(prefix.take([digest("c"), digest("x")])) == "NNN"
    prefix = ReturnedPrefix(tail("abcd"))
    prefix.take([digest("b")])
    assert letters(prefix.give_up_waiting()) == "?"
    assert letters(prefix.take([digest("c")])) == "?"


def test_the_digest_of_pieces_is_that_of_the_whole() -> None:
    body = bytes(range(256)) * 1000
    pieces = digest_start(b"key", b"\0\0")
    for start in range(0, len(body), 7000):
        pieces.update(body[start : start + 7000])
    assert pieces.digest() == message_digest(b"key", b"\0\0", body)
    small = digest_start(b"key", b"\0\0")
    small.update(b"body")
    assert small.digest() == message_digest(b"key", b"\0\0", b"body")


@dataclass(frozen=True)
class Crash:
    """What the broker and the log hold when a packer has died."""

    logged: str
    unacknowledged: int
    """Of the logged ones, as the broker sees it."""
    surely: int
    """Of those, what the successor knows to be unacknowledged."""
    unlogged: str
    """Consumed, and never logged."""
    expiring: str
    expired: frozenset[int]
    reads: list[int]
    ends_fresh: bool

    @property
    def comes_back(self) -> list[tuple[str, bool]]:
        """(letter, whether the log has it)"""
        start = len(self.logged) - self.unacknowledged
        back = [
            (letter, True)
            for place, letter in enumerate(self.logged)
            if place >= start and not (letter in self.expiring and place in self.expired)
        ]
        return back + [(letter, False) for letter in self.unlogged]


@st.composite
def crashes(draw: st.DrawFn, alphabet: str) -> Crash:
    logged = draw(st.text(alphabet, max_size=14))
    unacknowledged = draw(st.integers(0, len(logged)))
    return Crash(
        logged,
        unacknowledged,
        draw(st.integers(0, unacknowledged)),
        draw(st.text(alphabet, max_size=8)),
        draw(st.sampled_from(["", "a", "ab"])),
        draw(st.frozensets(st.integers(0, 14))),
        draw(st.lists(st.integers(1, 5), min_size=8, max_size=30)),
        draw(st.booleans()),
    )


def verdicts_of(crash: Crash) -> list[tuple[ReturnVerdict, bool]]:
    """Each verdict beside the truth."""
    prefix = ReturnedPrefix(tail(crash.logged, crash.expiring), crash.surely)
    back = crash.comes_back
    verdicts: list[ReturnVerdict] = []
    at = 0
    for read in crash.reads:
        verdicts += prefix.take([digest(letter) for letter, _ in back[at : at + read]])
        at += read
    verdicts += prefix.take([digest(letter) for letter, _ in back[at:]])
    verdicts += prefix.fresh() if crash.ends_fresh else prefix.give_up_waiting()
    assert len(verdicts) == len(back)
    assert prefix.undecided == 0
    return [(verdict, logged) for verdict, (_, logged) in zip(verdicts, back, strict=True)]


@settings(max_examples=500, deadline=None)
@given(crashes("ab") | crashes("abc") | crashes("abcdefghijkl"))
def test_nothing_is_lost_and_nothing_repeated_unflagged_whatever_repeats(crash: Crash) -> None:
    for verdict, logged in verdicts_of(crash):
        if verdict is ReturnVerdict.LOGGED:
            assert logged, "acknowledged, and not in the log"
        elif verdict is ReturnVerdict.NEW:
            assert not logged, "packed twice, unflagged"


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_messages_that_differ_are_never_in_doubt_when_one_was_surely_not_acknowledged(
    data: st.DataObject,
) -> None:
    logged = "".join(data.draw(st.permutations("abcdefgh")))
    unacknowledged = data.draw(st.integers(1, len(logged)))
    surely = data.draw(st.integers(1, unacknowledged))
    crash = Crash(logged, unacknowledged, surely, "xyz", "", frozenset(), [2] * 8, True)
    assert all(
        verdict is (ReturnVerdict.LOGGED if is_logged else ReturnVerdict.NEW)
        for verdict, is_logged in verdicts_of(crash)
    )


def test_two_thousand_identical_messages_are_compared_quickly_enough_to_count() -> None:
    # Every beginning fits until the end; done by slices, this takes milliseconds.
    prefix = ReturnedPrefix(tail("x" * 2000), 10)
    verdicts = prefix.take([digest("x")] * 1500)
    verdicts += prefix.fresh()
    assert letters(verdicts) == "L" * 10 + "?" * 1490


def test_the_like_of_a_logged_message_is_in_doubt_when_it_comes_again_behind_a_fresh_one() -> None:
    prefix = ReturnedPrefix(tail("abc"), 1)
    assert letters(prefix.take([digest("c")])) == "L"
    assert prefix.fresh() == []
    assert prefix.over
    assert letters([prefix.late(digest("a")), prefix.late(digest("x"))]) == "?N"
