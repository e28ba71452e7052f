"""Numbers of things in words. Pure."""

from __future__ import annotations


def counted(number: int, noun: str, *, plural: str = "") -> str:
    """Return `1 link`, `2 links`, `1,200 links`; `plural` where an s does not make the plural."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
