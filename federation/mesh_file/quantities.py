"""Durations and sizes as people write them (`72h`, `1.5s`; `20GB`, `256MiB`) and as the code has
them (seconds, bytes).
"""

from __future__ import annotations

import re

from federation.wording import WrongText

DURATION_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)")


_MEND_DURATION = "write a number and one unit of ms, s, m, h, d, such as 90s, 30m, 72h or 7d"
_WORDS = {
    **dict.fromkeys(("ms", "msec", "millisecond"), "ms"),
    **dict.fromkeys(("s", "sec", "second"), "s"),
    **dict.fromkeys(("m", "min", "minute"), "m"),
    **dict.fromkeys(("h", "hr", "hour"), "h"),
    **dict.fromkeys(("d", "day"), "d"),
}
_WEEKS = ("w", "week")


class BadDuration(WrongText):
    """An invalid duration."""


def parse_duration(text: object) -> float:
    """Return seconds, from a number and a unit of ms, s, m, h, d. Raises BadDuration."""
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise BadDuration("this is no duration", "write a number and a unit, such as 72h")
    if not isinstance(text, str):
        raise BadDuration(f"the duration {text} has no unit", f"write {text}s, {text}m or {text}h")
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise BadDuration(f"`{text}` is no duration", _likely_duration(text) or _MEND_DURATION)
    return float(match[1]) * DURATION_UNITS_S[match[2]]


def show_duration(seconds: float) -> str:
    """Return the duration for people, in the biggest unit that leaves a whole number."""
    for unit in ("d", "h", "m", "s"):
        size = DURATION_UNITS_S[unit]
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:g}s"


def _likely_duration(text: str) -> str:
    """Return a suggestion for `3 days`, `72 h` or `1w`, or an empty text."""
    match = re.fullmatch(r"\s*([0-9]{1,7}(?:\.[0-9]{1,6})?)\s*([A-Za-z]+)\s*", text)
    if match is None:
        return ""
    word = match[2].lower()
    for form in (word, word.removesuffix("s")):
        if form in _WORDS:
            return f"did you mean `{match[1]}{_WORDS[form]}`?"
        if form in _WEEKS:
            return f"did you mean `{float(match[1]) * 7:g}d`?"
    return ""


SIZE_UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_SIZE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(B|[KMGT]B|[KMGT]iB)")
_MEND_SIZE = "write a number and one unit of B, KB, MB, GB, TB, KiB, MiB, GiB, TiB, such as 20GB"


class BadSize(WrongText):
    """An invalid size."""


def parse_size(text: object) -> int:
    """Return bytes, from a number and a unit: KB is 1000 bytes, KiB 1024. Raises BadSize."""
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise BadSize("this is no size", "write a number and a unit, such as 20GB")
    if not isinstance(text, str):
        raise BadSize(f"the size {text} has no unit", f"write {text}MB or {text}GB")
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise BadSize(f"`{text}` is no size", _likely_size(text) or _MEND_SIZE)
    return round(float(match[1]) * SIZE_UNITS[match[2]])


def parse_rate(text: object) -> int:
    """Return bytes a second, from a size and `/s`. Raises BadSize."""
    if isinstance(text, str) and text.strip().endswith("/s"):
        return parse_size(text.strip().removesuffix("/s"))
    shown = f"`{text}`" if isinstance(text, str | int | float) else "this"
    raise BadSize(f"{shown} is no rate", "write a size a second, such as 200KB/s")


def show_size(count: float) -> str:
    """Return the size for people, with three digits, in the biggest decimal unit below it."""
    for unit in ("TB", "GB", "MB", "KB"):
        if count >= SIZE_UNITS[unit]:
            return f"{count / SIZE_UNITS[unit]:.3g}{unit}"
    return f"{count:.0f}B"


def _likely_size(text: str) -> str:
    """Return a suggestion for `20gb`, `20 GB` or `20G`, or an empty text."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*([kmgt])?(i)?b?\s*", text, re.IGNORECASE)
    if match is None or (match[2] is None and match[3] is not None):
        return ""
    likely = f"{match[1]}{(match[2] or '').upper()}{'i' if match[3] else ''}B"
    return f"did you mean `{likely}`?" if _SIZE.fullmatch(likely) else ""
