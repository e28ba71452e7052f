"""Whether two topic patterns can match the same key."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.destinations import literal_wildcard, may_both_match


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("store.#", "store.paris.#", True),
        ("store.#", "shop.paris.#", False),
        ("#", "anything.at.all", True),
        ("store", "store.#", True),
        ("*.new", "order.*", True),
        ("*.new", "order.*.old", False),
        ("#.end", "start.#", True),
        ("a.#.b", "a.b", True),
        ("a.*.b", "a.b", False),
        ("#", "#", True),
    ],
)
def test_two_patterns_meet_where_some_key_matches_both(one: str, other: str, both: bool) -> None:
    assert may_both_match(one, other) is both
    assert may_both_match(other, one) is both


@pytest.mark.parametrize(
    ("pattern", "word"),
    [
        ("order.#", ""),
        ("*.new.*", ""),
        ("#", ""),
        ("", ""),
        ("order.**", "**"),
        ("order.new#", "new#"),
        ("ord*.new", "ord*"),
    ],
)
def test_stars_and_hashes_beside_letters_stand_for_themselves(pattern: str, word: str) -> None:
    assert literal_wildcard(pattern) == word


WORDS = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=3)
KEYS = [list(key) for n in range(1, 7) for key in itertools.product("ab", repeat=n)]


def matches(pattern: list[str], key: list[str]) -> bool:
    if not pattern:
        return not key
    if pattern[0] == "#":
        return any(matches(pattern[1:], key[n:]) for n in range(len(key) + 1))
    return bool(key) and pattern[0] in ("*", key[0]) and matches(pattern[1:], key[1:])


@settings(derandomize=True, max_examples=150, deadline=None)
@given(one=WORDS, other=WORDS)
def test_it_is_as_trying_all_keys_would_say(one: list[str], other: list[str]) -> None:
    # Each word of a key that both match, and that has none to spare, is fixed by one of them.
    tried = any(matches(one, key) and matches(other, key) for key in KEYS)
    assert may_both_match(".".join(one), ".".join(other)) is tried
