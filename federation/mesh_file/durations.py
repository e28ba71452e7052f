"""Durations as people write them (`72h`, `1.5s`) and as the code has them (seconds)."""

from __future__ import annotations

import re

UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_FORM = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)")


_MEND = "write a number and one unit of ms, s, m, h, d, such as 90s, 30m, 72h or 7d"
_WORDS = {
    **dict.fromkeys(("ms", "msec", "millisecond"), "ms"),
    **dict.fromkeys(("s", "sec", "second"), "s"),
    **dict.fromkeys(("m", "min", "minute"), "m"),
    **dict.fromkeys(("h", "hr", "hour"), "h"),
    **dict.fromkeys(("d", "day"), "d"),
}
_WEEKS = ("w", "week")


class BadDuration(ValueError):
    """Not a duration. `wrong` says what it is instead, `mend` what to write."""

    def __init__(self, wrong: str, mend: str) -> None:
        self.wrong = wrong
        self.mend = mend
        super().__init__(f"{wrong}; {mend}")


def parse_duration(text: object) -> float:
    """Seconds. Takes a number and one unit: ms, s, m, h, d. Raises BadDuration."""
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise BadDuration("this is no duration", "write a number and a unit, such as 72h")
    if not isinstance(text, str):
        raise BadDuration(f"the duration {text} has no unit", f"write {text}s, {text}m or {text}h")
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise BadDuration(f"`{text}` is no duration", _meant(text) or _MEND)
    return float(match[1]) * UNITS_S[match[2]]


def show_duration(seconds: float) -> str:
    """The same, for people: in the biggest unit that leaves a whole number."""
    for unit in ("d", "h", "m", "s"):
        size = UNITS_S[unit]
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:g}s"


def _meant(text: str) -> str:
    """What somebody who wrote `3 days`, `72 h` or `1w` should have written."""
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
