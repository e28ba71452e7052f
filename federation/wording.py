"""Words of texts for people: numbers, the nearest known word, a mistake and its remedy. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence


class WrongText(ValueError):
    """Text that means nothing. `wrong` is the mistake, `mend` the remedy."""

    def __init__(self, wrong: str, mend: str) -> None:
        self.wrong = wrong
        self.mend = mend
        super().__init__(f"{wrong}; {mend}")


def counted(number: int, noun: str, *, plural: str = "") -> str:
    """Return `1 link`, `2 links`, `1,200 links`; `plural` where an s does not make the plural."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def few(words: Collection[str], most: int = 3, between: str = ", ") -> str:
    """Return `a, b, c and 4 more`."""
    shown, left = between.join(list(words)[:most]), len(words) - most
    return f"{shown} and {left:,} more" if left > 0 else shown


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word most similar to `word`, or None if none is similar."""
    found = difflib.get_close_matches(word.lower(), {k.lower(): k for k in known}, n=1, cutoff=0.6)
    return next((k for k in known if found and k.lower() == found[0]), None)


def numbered(noun: str, numbers: Sequence[int]) -> str:
    """Return the noun with some numbers: `slot 2`, `slots 2, 3`."""
    return f"{noun if len(numbers) == 1 else noun + 's'} {few([str(one) for one in numbers], 16)}"
