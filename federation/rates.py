"""How many bytes a second a link, or all links out of a site, may send; by the hour. Pure."""

from __future__ import annotations

from dataclasses import dataclass

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
