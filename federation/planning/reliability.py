"""How much of the time two sites are joined: two-terminal reliability, exactly. Pure.

The two ends are taken as given; sites between count with their own availability, links are
directed. What fails does so independently of the rest. Whether the two ways of a line fail together
makes no difference: of everything that spreads from one end only one way of a line is ever asked,
the one that leads to where it has not been yet.

Factoring: what is next to the origin is either reached, and then one with it, or that link leads
nowhere. Between these choices whatever has two neighbours becomes a link between them (series),
links side by side become one (parallel), and what leads nowhere goes.
"""

from __future__ import annotations

from collections.abc import Iterable

from federation.planning.routes import Routes
from federation.planning.site_classes import line

MOST_UNCERTAIN = 20
"""Links (or sites) that may fail, of what is left after reduction, up to which a graph is worked
out exactly: 20 ms at most. Two more double that.
"""


class TooManyUncertain(Exception):
    """More may fail than can be worked out exactly: sample instead."""

    def __init__(self, links: int, sites: int) -> None:
        self.links = links
        self.sites = sites
        super().__init__(f"{links} links and {sites} sites that may fail")


def availability_between(
    routes: Routes, origin: str, destination: str, most: int = MOST_UNCERTAIN
) -> float:
    """The part of the time that `origin` is joined to `destination`, 0 to 1, both of them working.

    Links must not have hosts. Raises TooManyUncertain above `most`.
    """
    net = _Net(routes, origin, destination)
    net.reduce()
    links, sites = net.uncertain()
    if max(links, sites) > most:
        raise TooManyUncertain(links, sites)
    return _factored(net)


class _Net:
    """What is not decided yet: `out[a][b]` and `parts[b]` are availabilities."""

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
        """Put a link in, side by side with one that is there."""
        if sender == receiver or receiver == self.origin or sender == self.destination or not part:
            return
        there = self.out[sender].get(receiver)
        self.out[sender][receiver] = part if there is None else 1 - (1 - there) * (1 - part)
        self.into[receiver].add(sender)

    def unlink(self, sender: str, receiver: str) -> float:
        self.into[receiver].discard(sender)
        return self.out[sender].pop(receiver)

    def drop(self, site: str) -> None:
        """Take a site out with all its links."""
        for receiver in self.out.pop(site):
            self.into[receiver].discard(site)
        for sender in self.into.pop(site):
            del self.out[sender][site]
        del self.parts[site]

    def reduce(self) -> None:
        """Take out all that can be told without a choice."""
        self._drop_dead_ends()
        waiting = [site for site in self.parts if site not in (self.origin, self.destination)]
        while waiting:
            site = waiting.pop()
            if site not in self.parts:
                continue
            near = self.into[site].union(self.out[site])
            if len(near) <= 2:
                self._shorten(site)
                waiting += (one for one in near if one not in (self.origin, self.destination))
        self._drop_dead_ends()

    def uncertain(self) -> tuple[int, int]:
        """Links and sites between that may fail; the two ways of a line are one."""
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
    """The reliability of a net that is reduced, which this uses up."""
    missing = 1.0  # the part of the time in which nothing so far joins the two
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
        site = max(ends, key=lambda one: len(net.out[one]))
        link, part = ends[site], net.parts[site]
        reached = link * part
        joined += missing * reached * _factored(_with_origin(net, site))
        if reached == 1:
            return joined
        missing *= 1 - reached
        # Not reached this way: the link failed or the site did, which it now does more likely.
        net.parts[site] = part * (1 - link) / (1 - reached)
        net.unlink(net.origin, site)
        net.reduce()


def _with_origin(net: _Net, site: str) -> _Net:
    """The net after `site` was reached: one with the origin."""
    net = net.copy()
    ends = net.out[site].copy()
    net.drop(site)
    for receiver, part in ends.items():
        net.link(net.origin, receiver, part)
    net.reduce()
    return net
