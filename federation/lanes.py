"""x"""

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


DAY_MINUTES = 24 * 60
_BITS = (("Gbit/s", 10**9), ("Mbit/s", 10**6), ("kbit/s", 10**3))


@dataclass(frozen=True, slots=True)
class RateHours:
    """From one minute of the day (0 to 1439) until before another, over midnight if that is
    smaller. `rate` in bytes a second, None: no limit.
    """

    begins: int
    ends: int
    rate: int | None

    def has(self, minute: int) -> bool:
        """Whether that minute of the day is in it."""
        if self.begins < self.ends:
            return self.begins <= minute < self.ends
        return minute >= self.begins or minute < self.ends

    def __str__(self) -> str:
        return f"{_time(self.begins)}-{_time(self.ends)}: {show_rate(self.rate)}"


@dataclass(frozen=True, slots=True)
class RateSchedule:
    """`rate` (bytes a second, None: no limit) but for `hours`, which do not overlap; by the clock
    on the wall of the site that sends.
    """

    rate: int | None
    hours: tuple[RateHours, ...] = ()

    def at(self, minute: int) -> int | None:
        """What holds at that minute of the day."""
        return next((one.rate for one in self.hours if one.has(minute)), self.rate)

    def __str__(self) -> str:
        return ", ".join([show_rate(self.rate), *map(str, self.hours)])


def show_rate(rate: int | None) -> str:
    """For people, in bits, as lines are sold."""
    if rate is None:
        return "unlimited"
    bits = rate * 8
    for unit, size in _BITS:
        if bits >= size:
            return f"{bits / size:.4g}{unit}"
    return f"{bits}bit/s"


def _time(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"
