"""How lanes and the rates of links are written in a mesh file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from federation.lanes import MOST_LANES, MOST_WEIGHT, NORMAL, lane_number, weights_of
from federation.mesh_file.line_rates import parse_max_rate
from federation.mesh_file.sizes import BadSize
from federation.mesh_file.values import PLAIN_NAME, refuse
from federation.rates import RateSchedule

_PLAIN = re.compile(PLAIN_NAME)
_EXAMPLE = "write lanes: [urgent, normal, bulk], or {urgent: 16, normal: 4, bulk: 1}"


def _lanes(value: object) -> object:
    """By name, in order, the weights."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        twice = next((one for n, one in enumerate(value) if one in value[:n]), None)
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


_RATE = {"type": "string", "pattern": r"^(unlimited|[0-9]+(\.[0-9]+)?([kMG]?bit|[KMGT]i?B|B)/s)$"}
_HOURS = r"^(default|[0-2][0-9]:[0-5][0-9]-[0-2][0-9]:[0-5][0-9])$"

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
"""In order: the first goes before all others."""
MaxRate = Annotated[
    RateSchedule,
    BeforeValidator(_max_rate),
    WithJsonSchema(
        {
            "anyOf": [
                _RATE,
                {
                    "type": "object",
                    "propertyNames": {"pattern": _HOURS},
                    "additionalProperties": _RATE,
                },
            ],
            "x-type": "rate, or rates by hours",
        }
    ),
]
