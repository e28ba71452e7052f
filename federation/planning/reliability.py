"""Availability between two sites: two-terminal reliability, exactly or by sampling. Pure.

The two ends are taken as given; sites between count with their own availability, links are
directed. Failures are independent. Correlation of the two ways of a line makes no difference: of
everything that spreads from one end only one way of a line is ever used, towards the end not yet
reached.

Factoring: a neighbour of the origin is either reached, and then merged with the origin, or that
link leads nowhere. Between these choices a site with two neighbours becomes a link between them
(series), links side by side become one (parallel), and dead ends go.

Sampling: seeded Monte Carlo for graphs too tangled for factoring. A sample is one bit of a long
integer, so that one AND handles 65,536 samples, and one pass from a site gives the availability of
every other site from there.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping

from federation.planning.availability import Availability
from federation.planning.routes import Routes
from federation.planning.site_classes import line

MOST_UNCERTAIN = 20
"""Limit of links (or sites) that may fail, after reduction, up to which a graph is factored: 20 ms
at most. Two more double the time.
"""


class TooManyUncertain(Exception):
    """Too many links or sites may fail for an exact figure: sample instead."""

    def __init__(self, links: int, sites: int) -> None:
        self.links = links
        self.sites = sites
        super().__init__(f"{links} links and {sites} sites that may fail")


def availability_between(
    routes: Routes, origin: str, destination: str, most: int = MOST_UNCERTAIN
) -> float:
    """Return the part of the time that `origin` is joined to `destination`, 0 to 1, both of them
    working.

    Links must not have hosts. Raises TooManyUncertain above `most`.
    """
    net = _Net(routes, origin, destination)
    net.reduce()
    links, sites = net.uncertain()
    if max(links, sites) > most:
        raise TooManyUncertain(links, sites)
    return _factored(net)


class _Net:
    """The undecided rest of a graph: `out[a][b]` and `parts[b]` are availabilities."""

    __slots__ = ("destination", "into", "origin", "out", "parts")

    def __init__(self, routes: Routes, origin: str, destination: str) -> None:
        self.origin = origin
        self.destination = destination
        self.parts = dict(routes.sites)
        self.parts[origin] = self.parts[destination] = 1.0
        self.out: dict[str, dict[str, float]] = {site: {} for site in self.parts}
        self.into: dict[str, set[str]] = {site: set() for site in self.parts}
        for (sender, receiver), hop in routes.hops.items():
            self.link(sender, receiver, hop.availability)

    def copy(self) -> _Net:
        other = _Net.__new__(_Net)
        other.origin, other.destination = self.origin, self.destination
        other.parts = self.parts.copy()
        other.out = {site: ends.copy() for site, ends in self.out.items()}
        other.into = {site: ends.copy() for site, ends in self.into.items()}
        return other

    def link(self, sender: str, receiver: str, part: float) -> None:
        """Add a link, side by side with a present link."""
        if sender == receiver or receiver == self.origin or sender == self.destination or not part:
            return
        there = self.out[sender].get(receiver)
        self.out[sender][receiver] = part if there is None else 1 - (1 - there) * (1 - part)
        self.into[receiver].add(sender)

    def unlink(self, sender: str, receiver: str) -> float:
        self.into[receiver].discard(sender)
        return self.out[sender].pop(receiver)

    def drop(self, site: str) -> None:
        """Remove a site with all its links."""
        for receiver in self.out.pop(site):
            self.into[receiver].discard(site)
        for sender in self.into.pop(site):
            del self.out[sender][site]
        del self.parts[site]

    def reduce(self) -> None:
        """Apply all reductions that need no choice."""
        self._drop_dead_ends()
        ends = (self.origin, self.destination)
        waiting = [site for site in self.parts if site not in ends]
        while waiting:
            site = waiting.pop()
            if site not in self.parts:
                continue
            near = self.into[site].union(self.out[site])
            if len(near) <= 2:
                self._shorten(site)
                waiting += (neighbour for neighbour in near if neighbour not in ends)
        self._drop_dead_ends()

    def uncertain(self) -> tuple[int, int]:
        """Return the number of links and of sites between that may fail; the two ways of a line are
        one link.
        """
        links = {
            line((sender, receiver))
            for sender, ends in self.out.items()
            for receiver, part in ends.items()
            if part < 1
        }
        return len(links), sum(part < 1 for part in self.parts.values())

    def _shorten(self, site: str) -> None:
        ends, part = self.out[site], self.parts[site]
        through = [
            (sender, receiver, self.out[sender][site] * part * ends[receiver])
            for sender in self.into[site]
            for receiver in ends
        ]
        self.drop(site)
        for sender, receiver, availability in through:
            self.link(sender, receiver, availability)

    def _drop_dead_ends(self) -> None:
        ahead = _spread(self.origin, self.out)
        behind = _spread(self.destination, self.into)
        for site in list(self.parts):
            if not (site in ahead and site in behind) and site not in (
                self.origin,
                self.destination,
            ):
                self.drop(site)


def _spread(start: str, ends: dict[str, dict[str, float]] | dict[str, set[str]]) -> set[str]:
    seen, waiting = {start}, [start]
    while waiting:
        near: Iterable[str] = ends[waiting.pop()]
        for site in near:
            if site not in seen:
                seen.add(site)
                waiting.append(site)
    return seen


def _factored(net: _Net) -> float:
    """Return the reliability of a reduced net, which this function uses up."""
    missing = 1.0  # part of the time in which no way so far joins the two
    joined = 0.0
    while True:
        ends = net.out[net.origin]
        if net.destination in ends:
            direct = net.unlink(net.origin, net.destination)
            joined += missing * direct
            missing *= 1 - direct
            net.reduce()
            continue
        if not ends or not missing:
            return joined
        site = max(ends, key=lambda neighbour: len(net.out[neighbour]))
        link, part = ends[site], net.parts[site]
        reached = link * part
        joined += missing * reached * _factored(_with_origin(net, site))
        if reached == 1:
            return joined
        missing *= 1 - reached
        # Not reached this way: the link failed, or the site did, now with a higher probability.
        net.parts[site] = part * (1 - link) / (1 - reached)
        net.unlink(net.origin, site)
        net.reduce()


def _with_origin(net: _Net, site: str) -> _Net:
    """Return the net after `site` was reached, merged with the origin."""
    net = net.copy()
    ends = net.out[site].copy()
    net.drop(site)
    for receiver, part in ends.items():
        net.link(net.origin, receiver, part)
    net.reduce()
    return net


SAMPLES = 65_536
"""Number of samples: a part of 0.9999 has a standard error of 0.00004."""
SEED = 20
_DIGITS = 53
"""Binary digits kept of a part."""


class Samples:
    """Working sites and links of `routes` in each sample."""

    def __init__(self, routes: Routes, *, seed: int = SEED, samples: int = SAMPLES) -> None:
        drawing = random.Random(seed)
        self._samples = samples
        self._hosts = routes.hosts
        self._all = (1 << samples) - 1
        self._sites = {site: self._drawn(part, drawing) for site, part in routes.sites.items()}
        # Two ways of equal availability are drawn once: correlation makes no difference.
        lines: dict[object, int] = {}
        self._ends: dict[str, list[tuple[str, int]]] = {site: [] for site in routes.sites}
        for (sender, receiver), hop in routes.hops.items():
            key = (line((sender, receiver)), hop.availability)
            if key not in lines:
                lines[key] = self._drawn(hop.availability, drawing)
            works = lines[key] & (self._sites[hop.host] if hop.host is not None else self._all)
            self._ends[sender].append((receiver, works))

    def availability_from(self, origin: str) -> Mapping[str, Availability]:
        """Return the availability of every other site that is joined to `origin` in any sample,
        both ends working.
        """
        arriving = {origin: self._all}
        waiting = {origin: None}
        while waiting:
            site = next(iter(waiting))
            del waiting[site]
            # A working origin passes everything on, any other site only in samples where it works.
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
        """Return the samples in which an end works, which counts only if others meet there."""
        return self._sites[end] if end in self._hosts else self._all

    def _drawn(self, part: float, drawing: random.Random) -> int:
        """Return as many bits as samples, each 1 with probability `part`."""
        if part >= 1:
            return self._all
        bits = 0
        digits = round(part * (1 << _DIGITS))
        # Digits of `part` from the last on: 1 is OR, 0 is AND with random bits.
        for n in range(_DIGITS):
            half = drawing.getrandbits(self._samples)
            bits = bits | half if digits >> n & 1 else bits & half
        return bits


def _found(joined: int, given: int) -> Availability:
    """Return the counted availability. Its error is that of one more success and one more failure:
    a part never seen to fail is not certain.
    """
    samples = given.bit_count()
    if not samples:
        return Availability(0.0, 1.0)
    count = (joined & given).bit_count()
    likely = (count + 1) / (samples + 2)
    return Availability(count / samples, math.sqrt(likely * (1 - likely) / samples))
