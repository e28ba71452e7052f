"""Patterns of topic exchanges: words between dots, `*` for one word, `#` for any number. Pure."""

from __future__ import annotations


def may_both_match(pattern: str, other: str) -> bool:
    """Return True if some key matches both patterns."""
    left, right = pattern.split("."), other.split(".")
    # row[j]: the words of `left` so far and the first j of `right` can match the same words.
    row = [True] + [False] * len(right)
    for j, word in enumerate(right, 1):
        row[j] = row[j - 1] and word == "#"
    for first in left:
        below = [row[0] and first == "#"] + [False] * len(right)
        for j, second in enumerate(right, 1):
            if first == "#" or second == "#":
                # `#` matches no word, or the other pattern's word.
                below[j] = row[j] or below[j - 1]
            else:
                below[j] = row[j - 1] and ("*" in (first, second) or first == second)
        row = below
    return row[-1]


def literal_wildcard(pattern: str) -> str:
    """Return the first word with a `*` or `#` beside other characters, which brokers take
    literally; empty if there is none.
    """
    for word in pattern.split("."):
        if len(word) > 1 and ("*" in word or "#" in word):
            return word
    return ""
