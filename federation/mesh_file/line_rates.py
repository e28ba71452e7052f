"""`max_rate` as people write it: `20Mbit/s`, `2MB/s`, `unlimited`, or a mapping by the hour."""

from __future__ import annotations

import re

from federation.mesh_file.sizes import UNITS, BadSize
from federation.rates import DAY_MINUTES, RateHours, RateSchedule

UNLIMITED = "unlimited"
LEAST = 2000
"""Bytes a second. Less than 16 kbit/s, and what keeps a session alive is all that goes over it."""
_BITS = {"bit": 1, "kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9}
_FORM = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([A-Za-z]+)/s")
_HOURS = re.compile(r"([01][0-9]|2[0-4]):([0-5][0-9])-([01][0-9]|2[0-4]):([0-5][0-9])")
_MEND = "write such as 20Mbit/s, 512kbit/s, 2MB/s or unlimited"
_MEND_ALL = 'write a rate, or such as {default: 20Mbit/s, "22:00-06:00": unlimited}'


def parse_line_rate(text: object) -> int | None:
    """Bytes a second; None for `unlimited`. Raises BadSize."""
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise BadSize("this is no rate", _MEND)
    if not isinstance(text, str):
        raise BadSize(f"the rate {text} has no unit", f"write {text}kbit/s or {text}Mbit/s")
    said = text.strip()
    if said == UNLIMITED:
        return None
    match = _FORM.fullmatch(said)
    if match is None:
        raise BadSize(f"`{text}` is no rate", _meant(said) or _MEND)
    number, unit = float(match[1]), match[2]
    if unit in _BITS:
        rate = round(number * _BITS[unit] / 8)
    elif unit in UNITS:
        rate = round(number * UNITS[unit])
    else:
        raise BadSize(f"`{text}` is no rate", _meant(said) or _MEND)
    if rate < LEAST:
        raise BadSize(
            f"`{text}` is too little: what keeps a link alive would be all that goes over it",
            "write 16kbit/s or more; `isthmus pause FILE --link FROM-TO` holds a link back",
        )
    return rate


def parse_max_rate(said: object) -> RateSchedule:
    """What holds at which time of the day. Raises BadSize."""
    if isinstance(said, RateSchedule):
        return said
    if not isinstance(said, dict):
        return RateSchedule(parse_line_rate(said))
    if not said or not all(isinstance(key, str) for key in said):
        raise BadSize("this is no rate", _MEND_ALL)
    default = parse_line_rate(said.get("default", UNLIMITED))
    hours = [_hours(key, value) for key, value in said.items() if key != "default"]
    taken: dict[int, RateHours] = {}
    for one in hours:
        for minute in filter(one.has, range(DAY_MINUTES)):
            other = taken.setdefault(minute, one)
            if other is not one:
                raise BadSize(
                    f"at {minute // 60:02}:{minute % 60:02} both `{other}` and `{one}` would hold",
                    "let one end where the other begins",
                )
    return RateSchedule(default, tuple(hours))


def _hours(key: str, value: object) -> RateHours:
    match = _HOURS.fullmatch(key.strip())
    if match is None:
        raise BadSize(
            f"`{key}` is no time of the day", 'write default, or hours such as "22:00-06:00"'
        )
    first, last = (int(match[n]) * 60 + int(match[n + 1]) for n in (1, 3))
    if first >= DAY_MINUTES or last > DAY_MINUTES:
        raise BadSize(f"`{key}`: a day has 24 hours", 'write such as "22:00-06:00"')
    last %= DAY_MINUTES
    if first == last:
        raise BadSize(
            f"`{key}` begins where it ends", "write `default` for the whole day, or other hours"
        )
    return RateHours(first, last, parse_line_rate(value))


def _meant(text: str) -> str:
    """What somebody who wrote `20mbit`, `20 Mbps` or `2 mb/s` should have written."""
    match = re.fullmatch(
        r"([0-9.]+)\s*([kmg])?(i?b|bit|bits|bps|bit/s|b/s|bits/s)(?:/s)?", text, re.I
    )
    if match is None:
        return ""
    size, word = match[2] or "", match[3]
    is_bits = "bit" in word.lower() or word.lower() == "bps"
    unit = f"{'k' if size.lower() == 'k' else size.upper()}bit" if is_bits else f"{size.upper()}B"
    return f"did you mean `{match[1]}{unit}/s`?"
