"""Patterns of topic exchanges: words between dots, `*` for one word, `#` for any number. Pure."""

from __future__ import annotations


def may_both_match(one: str, other: str) -> bool:
    """Whether there is a key that both patterns match."""
    left, right = one.split("."), other.split(".")
    # row[j]: the words of `left` so far and the first j of `right` can match the same words.
    row = [True] + [False] * len(right)
    for j, word in enumerate(right, 1):
        row[j] = row[j - 1] and word == "#"
    for first in left:
        below = [row[0] and first == "#"] + [False] * len(right)
        for j, second in enumerate(right, 1):
            if first == "#" or second == "#":
                # It stands for nothing, or for what the other one has here.
                below[j] = row[j] or below[j - 1]
            else:
                below[j] = row[j - 1] and ("*" in (first, second) or first == second)
        row = below
    return row[-1]


def literal_wildcard(pattern: str) -> str:
    """The first word that has a `*` or `#` beside something else, where brokers take it as it
    stands; empty if there is none.
    """
    for word in pattern.split("."):
        if len(word) > 1 and ("*" in word or "#" in word):
            return word
    return ""
