"""Lanes, classes of traffic that share a link by weight, and the rates of links. Pure.

Each batch name has a lane's number, so mesh files of all revisions, and at sites without the newest
revision, must agree on the number whatever other lanes they have: it follows from the lane's name
alone. Two names may have the same number; the mesh file refuses the second.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

NORMAL = "normal"
"""Lane of an exchange that names none, and of a batch whose lane the mesh file no longer has."""

NORMAL_NUMBER = 0
NUMBERS = {NORMAL: NORMAL_NUMBER, "urgent": 1, "bulk": 2}
_FIRST_DRAWN, _DRAWN = 3, 200
STEP = 4
"""Ratio of a lane's weight to the next lane's, where the file gives no weights."""
MOST_LANES = 5
MOST_WEIGHT = 1000


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane of a mesh. `weight` is its part of a link's rate, relative to those of the others."""

    name: str
    number: int
    weight: int


def lane_number(name: str) -> int:
    """Return the number that stands in the names of a lane's batches: 0 to 255."""
    known = NUMBERS.get(name)
    return _FIRST_DRAWN + crc32(name.encode()) % _DRAWN if known is None else known


def lane_word(number: int, lanes: Iterable[Lane] = ()) -> str:
    """Return a lane's name, or `number N` if the name is unknown."""
    names = {lane.number: lane.name for lane in lanes}
    names |= {known: name for name, known in NUMBERS.items()}
    return names.get(number, f"number {number}")


def weights_of(names: Iterable[str]) -> dict[str, int]:
    """Return the weights of lanes given by name only, the most urgent first."""
    listed = list(names)
    return {name: STEP ** (len(listed) - 1 - n) for n, name in enumerate(listed)}


DAY_MINUTES = 24 * 60
_BITS = (("Gbit/s", 10**9), ("Mbit/s", 10**6), ("kbit/s", 10**3))


@dataclass(frozen=True, slots=True)
class RateHours:
    """Rate from minute `begins` of the day (0 to 1439) until before minute `ends`, over midnight if
    `ends` is smaller. `rate` in bytes a second, or None without a limit.
    """

    begins: int
    ends: int
    rate: int | None

    def has(self, minute: int) -> bool:
        """Return True if the hours include a minute of the day."""
        if self.begins < self.ends:
            return self.begins <= minute < self.ends
        return minute >= self.begins or minute < self.ends

    def __str__(self) -> str:
        return f"{_time(self.begins)}-{_time(self.ends)}: {show_rate(self.rate)}"


@dataclass(frozen=True, slots=True)
class RateSchedule:
    """Rate of a link, or of all links out of a site: `rate` (bytes a second, or None without a
    limit) except in `hours`, which do not overlap, by the wall clock of the sending site.
    """

    rate: int | None
    hours: tuple[RateHours, ...] = ()

    def at(self, minute: int) -> int | None:
        """Return the rate at a minute of the day."""
        return next((hours.rate for hours in self.hours if hours.has(minute)), self.rate)

    def __str__(self) -> str:
        return ", ".join([show_rate(self.rate), *map(str, self.hours)])


def show_rate(rate: int | None) -> str:
    """Return the rate for people, in bits, as lines are sold."""
    if rate is None:
        return "unlimited"
    bits = rate * 8
    for unit, size in _BITS:
        if bits >= size:
            return f"{bits / size:.4g}{unit}"
    return f"{bits}bit/s"


def _time(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"
