"""Lanes: classes of traffic that share a link by weight. Pure.

A lane's number stands in the name of each batch, so mesh files of all revisions, and at sites that
have not got the newest one, must agree on it whatever other lanes they have: it follows from the
lane's name alone. Two names may come to the same number; the mesh file refuses the second.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

NORMAL = "normal"
"""The lane of an exchange that names none, and of a batch whose lane the mesh file has no more."""

NORMAL_NUMBER = 0
_NUMBERS = {NORMAL: NORMAL_NUMBER, "urgent": 1, "bulk": 2}
_FIRST_DRAWN, _DRAWN = 3, 200
STEP = 4
"""How much more each lane weighs than the next, where the file gives no weights."""
MOST_LANES = 5
MOST_WEIGHT = 1000


@dataclass(frozen=True, slots=True)
class Lane:
    """One of a mesh's. `weight` is its part of a link's rate, against those of the others."""

    name: str
    number: int
    weight: int


def lane_number(name: str) -> int:
    """What stands in the names of its batches: 0 to 255."""
    known = _NUMBERS.get(name)
    return _FIRST_DRAWN + crc32(name.encode()) % _DRAWN if known is None else known


def lane_word(number: int, lanes: Iterable[Lane] = ()) -> str:
    """How people call it, as far as the number tells."""
    names = {lane.number: lane.name for lane in lanes}
    names |= {known: name for name, known in _NUMBERS.items()}
    return names.get(number, f"number {number}")


def weights_of(names: Iterable[str]) -> dict[str, int]:
    """The weights of lanes that are only named, the first of which goes before all others."""
    listed = list(names)
    return {name: STEP ** (len(listed) - 1 - n) for n, name in enumerate(listed)}
