"""Numbers of things in words."""

from __future__ import annotations

import pytest

from federation.wording import counted


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
