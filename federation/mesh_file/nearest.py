"""Suggestion of a known word for a mistyped one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word most similar to `word`, or None if none is similar."""
    found = difflib.get_close_matches(word.lower(), {k.lower(): k for k in known}, n=1, cutoff=0.6)
    return next((k for k in known if found and k.lower() == found[0]), None)
