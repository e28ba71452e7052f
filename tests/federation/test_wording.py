"""Numbers of things and lists of names in words."""

from __future__ import annotations

import pytest

from federation.wording import counted, few


@pytest.mark.parametrize(
    ("number", "plural", "said"),
    [
        (0, "", "0 messages"),
        (1, "", "1 message"),
        (2, "", "2 messages"),
        (12_000, "", "12,000 messages"),
        (2, "of them", "2 of them"),
        (1, "of them", "1 message"),
    ],
)
def test_one_is_one_and_all_others_are_many(number: int, plural: str, said: str) -> None:
    assert counted(number, "message", plural=plural) == said


def test_of_many_names_the_first_are_listed_and_the_rest_counted() -> None:
    assert few(()) == ""
    assert few(["a", "b", "c"]) == "a, b, c"
    assert few(["a", "b", "c", "d"]) == "a, b, c and 1 more"
    assert few("abcdef", 5, between="; ") == "a; b; c; d; e and 1 more"
    assert few([str(number) for number in range(1_203)]) == "0, 1, 2 and 1,200 more"
