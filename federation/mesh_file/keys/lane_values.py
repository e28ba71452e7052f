"""Values of lanes and of links' rates, as a mesh file writes them: `max_rate` is `20Mbit/s`,
`2MB/s`, `unlimited`, or a mapping by the hour.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from federation.lanes import (
    DAY_MINUTES,
    MOST_LANES,
    MOST_WEIGHT,
    NORMAL,
    RateHours,
    RateSchedule,
    lane_number,
    weights_of,
)
from federation.mesh_file.keys.values import PLAIN_NAME, parsed, refuse
from federation.mesh_file.quantities import SIZE_UNITS, BadSize

UNLIMITED = "unlimited"
LEAST = 2000
"""Least rate, in bytes a second: below 16 kbit/s a link carries nothing but what keeps its session
alive.
"""
_BITS = {"bit": 1, "kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9}
_RATE_FORM = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([A-Za-z]+)/s")
_HOURS_FORM = re.compile(r"([01][0-9]|2[0-4]):([0-5][0-9])-([01][0-9]|2[0-4]):([0-5][0-9])")
_MEND_RATE = "write such as 20Mbit/s, 512kbit/s, 2MB/s or unlimited"
_MEND_ALL = 'write a rate, or such as {default: 20Mbit/s, "22:00-06:00": unlimited}'


def parse_line_rate(text: object) -> int | None:
    """Return bytes a second, or None for `unlimited`. Raises BadSize."""
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise BadSize("this is no rate", _MEND_RATE)
    if not isinstance(text, str):
        raise BadSize(f"the rate {text} has no unit", f"write {text}kbit/s or {text}Mbit/s")
    stripped = text.strip()
    if stripped == UNLIMITED:
        return None
    match = _RATE_FORM.fullmatch(stripped)
    if match is None:
        raise BadSize(f"`{text}` is no rate", _likely_rate(stripped) or _MEND_RATE)
    number, unit = float(match[1]), match[2]
    if unit in _BITS:
        rate = round(number * _BITS[unit] / 8)
    elif unit in SIZE_UNITS:
        rate = round(number * SIZE_UNITS[unit])
    else:
        raise BadSize(f"`{text}` is no rate", _likely_rate(stripped) or _MEND_RATE)
    if rate < LEAST:
        raise BadSize(
            f"`{text}` is too little: what keeps a link alive would be all that goes over it",
            "write 16kbit/s or more; `isthmus pause FILE --link FROM-TO` holds a link back",
        )
    return rate


def parse_finite_rate(text: object) -> int:
    """Return bytes a second. Raises BadSize, also for `unlimited`."""
    rate = parse_line_rate(text)
    if rate is None:
        raise BadSize(
            f"`{UNLIMITED}` is no rate here", "write such as 20Mbit/s, 512kbit/s or 2MB/s"
        )
    return rate


def parse_max_rate(written: object) -> RateSchedule:
    """Return the rates by the time of the day. Raises BadSize."""
    if isinstance(written, RateSchedule):
        return written
    if not isinstance(written, dict):
        return RateSchedule(parse_line_rate(written))
    if not written or not all(isinstance(key, str) for key in written):
        raise BadSize("this is no rate", _MEND_ALL)
    default = parse_line_rate(written.get("default", UNLIMITED))
    hours = [_hours(key, value) for key, value in written.items() if key != "default"]
    taken: dict[int, RateHours] = {}
    for own in hours:
        for minute in filter(own.has, range(DAY_MINUTES)):
            other = taken.setdefault(minute, own)
            if other is not own:
                raise BadSize(
                    f"at {minute // 60:02}:{minute % 60:02} both `{other}` and `{own}` would hold",
                    "let one end where the other begins",
                )
    return RateSchedule(default, tuple(hours))


def _hours(key: str, value: object) -> RateHours:
    match = _HOURS_FORM.fullmatch(key.strip())
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


def _likely_rate(text: str) -> str:
    """Return a suggestion for `20mbit`, `20 Mbps` or `2 mb/s`, or an empty text."""
    match = re.fullmatch(
        r"([0-9.]+)\s*([kmg])?(i?b|bit|bits|bps|bit/s|b/s|bits/s)(?:/s)?", text, re.I
    )
    if match is None:
        return ""
    size, word = match[2] or "", match[3]
    is_bits = "bit" in word.lower() or word.lower() == "bps"
    unit = f"{'k' if size.lower() == 'k' else size.upper()}bit" if is_bits else f"{size.upper()}B"
    return f"did you mean `{match[1]}{unit}/s`?"


_PLAIN = re.compile(PLAIN_NAME)
_EXAMPLE = "write lanes: [urgent, normal, bulk], or {urgent: 16, normal: 4, bulk: 1}"


def _lanes(value: object) -> object:
    """Check lanes; return their weights by name, in order."""
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        twice = next((name for n, name in enumerate(value) if name in value[:n]), None)
        if twice is not None:
            raise refuse(f"the lane `{twice}` is here twice", "keep one of them")
        weights: Mapping[Any, object] = weights_of(value)
    elif isinstance(value, dict):
        weights = value
    else:
        raise refuse("this is no list of lanes", _EXAMPLE)
    if NORMAL in weights and not 2 <= len(weights) <= MOST_LANES:
        raise refuse(
            f"a mesh has 2 to {MOST_LANES} lanes, or none: each takes a connection at both ends "
            "of each link",
            "take `lanes` out" if len(weights) == 1 else "name fewer",
        )
    numbers: dict[int, str] = {}
    for name, weight in weights.items():
        if not isinstance(name, str) or not _PLAIN.fullmatch(name):
            raise refuse(
                f"`{name}` cannot name a lane",
                "write 1 to 63 letters (a to z), digits, - and _, beginning with a letter or digit",
            )
        if type(weight) is not int or not 1 <= weight <= MOST_WEIGHT:
            raise refuse(
                f"the weight of lane `{name}` is a whole number from 1 to {MOST_WEIGHT}", _EXAMPLE
            )
        other = numbers.setdefault(lane_number(name), name)
        if other != name:
            raise refuse(
                f"the lanes `{other}` and `{name}` come to the same number on the wire",
                "name one of them otherwise",
            )
    if NORMAL not in weights:
        raise refuse(
            f"there is no lane `{NORMAL}`, which an exchange has that names none",
            f"add it where it belongs: {_EXAMPLE.removeprefix('write ')}",
        )
    return weights


def _max_rate(value: object) -> object:
    try:
        return parse_max_rate(value)
    except BadSize as error:
        raise refuse(error.wrong, error.mend) from None


_RATE_SCHEMA = {
    "type": "string",
    "pattern": r"^(unlimited|[0-9]+(\.[0-9]+)?([kMG]?bit|[KMGT]i?B|B)/s)$",
}
_HOURS_PATTERN = r"^(default|[0-2][0-9]:[0-5][0-9]-[0-2][0-9]:[0-5][0-9])$"

Lanes = Annotated[
    dict[str, int],
    BeforeValidator(_lanes),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": {"type": "string", "pattern": f"^{PLAIN_NAME}$"}},
                {
                    "type": "object",
                    "propertyNames": {"pattern": f"^{PLAIN_NAME}$"},
                    "additionalProperties": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": MOST_WEIGHT,
                    },
                },
            ]
        }
    ),
]
"""Lanes in order: the first goes before all others."""
FiniteRate = Annotated[
    int,
    parsed(parse_finite_rate),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^[0-9]+(\.[0-9]+)?([kMG]?bit|B|[KMGT]i?B)/s$",
            "x-type": "rate",
        }
    ),
]
MaxRate = Annotated[
    RateSchedule,
    BeforeValidator(_max_rate),
    WithJsonSchema(
        {
            "anyOf": [
                _RATE_SCHEMA,
                {
                    "type": "object",
                    "propertyNames": {"pattern": _HOURS_PATTERN},
                    "additionalProperties": _RATE_SCHEMA,
                },
            ],
            "x-type": "rate, or rates by hours",
        }
    ),
]
