"""How much of the time sites are joined, by sampling: for what is too tangled to work out.

Seeded Monte Carlo. A sample is one bit of a long integer, so that one AND does 65,536 of them, and
one run from a site tells the availability of every other from there.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

from federation.planning.availability import Availability
from federation.planning.routes import Routes
from federation.planning.site_classes import line

SAMPLES = 65_536
"""A part of 0.9999 then has a standard error of 0.00004."""
SEED = 20
_DIGITS = 53
"""Binary digits of a part that are kept."""


class Samples:
    """Which sites and links of `routes` work, in each of the samples."""

    def __init__(self, routes: Routes, *, seed: int = SEED, samples: int = SAMPLES) -> None:
        drawing = random.Random(seed)
        self._samples = samples
        self._hosts = routes.hosts
        self._all = (1 << samples) - 1
        self._sites = {site: self._drawn(part, drawing) for site, part in routes.sites.items()}
        # The two ways of a line that is as good either way are drawn once: it makes no difference.
        lines: dict[object, int] = {}
        self._ends: dict[str, list[tuple[str, int]]] = {site: [] for site in routes.sites}
        for (sender, receiver), hop in routes.hops.items():
            key = (line((sender, receiver)), hop.availability)
            if key not in lines:
                lines[key] = self._drawn(hop.availability, drawing)
            works = lines[key] & (self._sites[hop.host] if hop.host is not None else self._all)
            self._ends[sender].append((receiver, works))

    def availability_from(self, origin: str) -> Mapping[str, Availability]:
        """Of every other site that is joined to `origin` in any sample, both ends working."""
        arriving = {origin: self._all}
        waiting = {origin: None}
        while waiting:
            site = next(iter(waiting))
            del waiting[site]
            # An origin that works passes everything on, any other site what finds it working.
            through = self._all if site == origin else arriving[site] & self._sites[site]
            for neighbour, works in self._ends[site]:
                before = arriving.get(neighbour, 0)
                after = before | (through & works)
                if after != before:
                    arriving[neighbour] = after
                    waiting[neighbour] = None
        del arriving[origin]
        given = self._given(origin)
        return {site: _found(bits, given & self._given(site)) for site, bits in arriving.items()}

    def _given(self, end: str) -> int:
        """The samples in which an end works, which counts only where others meet there."""
        return self._sites[end] if end in self._hosts else self._all

    def _drawn(self, part: float, drawing: random.Random) -> int:
        """As many bits as there are samples, each 1 in that part of the cases."""
        if part >= 1:
            return self._all
        bits = 0
        digits = round(part * (1 << _DIGITS))
        # The digits of `part` from the last on: 1 is OR, 0 is AND with bits of which half are 1.
        for n in range(_DIGITS):
            half = drawing.getrandbits(self._samples)
            bits = bits | half if digits >> n & 1 else bits & half
        return bits


def _found(joined: int, given: int) -> Availability:
    """What was counted. The error is that of one success and one failure more: a part that was
    never seen to fail is not certain.
    """
    samples = given.bit_count()
    if not samples:
        return Availability(0.0, 1.0)
    count = (joined & given).bit_count()
    likely = (count + 1) / (samples + 2)
    return Availability(count / samples, math.sqrt(likely * (1 - likely) / samples))
