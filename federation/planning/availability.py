"""Availability of a site or pair, with its error and its text for people. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

YEAR_S = 365.25 * 86_400


@dataclass(frozen=True, slots=True)
class Availability:
    """Part of the time, 0 to 1. `standard_error` is 0 for an exact figure."""

    part: float
    standard_error: float = 0.0

    @property
    def is_exact(self) -> bool:
        return self.standard_error == 0

    def and_then(self, other: Availability) -> Availability:
        """Return the availability of two that fail independently and are both needed."""
        part = self.part * other.part
        error = math.hypot(self.standard_error * other.part, other.standard_error * self.part)
        return Availability(part, error)

    def __str__(self) -> str:
        """Return a percentage with enough digits to differ from 100; `~` marks a sampled figure."""
        if self.is_exact:
            return show_part(self.part)
        part = show_part(self.part).removesuffix(" %")
        return f"~{part} ± {_digits(100 * self.standard_error)} %"


NEVER = Availability(0.0)


def show_part(part: float) -> str:
    """Return `99.99 %`: two digits of the difference to 100, at most twelve decimals."""
    missing = 100 * (1 - part)
    if missing < 1e-12:
        return "100 %"
    decimals = min(12, max(1, 1 - math.floor(math.log10(missing))))
    return f"{100 * part:.{decimals}f}".rstrip("0").rstrip(".") + " %"


def show_apart(part: float) -> str:
    """Return the time in a year outside `part`: `53 min`, `3.7 d`."""
    seconds = (1 - part) * YEAR_S
    for unit, size in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= size:
            return f"{_digits(seconds / size)} {unit}"
    return "0 s" if seconds < 1e-4 else "under 1 s"


def _digits(value: float) -> str:
    """Return two digits, without an exponent where possible."""
    if value >= 10:
        return f"{value:,.0f}"
    return f"{value:.2g}"
