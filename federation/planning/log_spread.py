"""Logs that a message enters on its way. Pure.

A site logs what it sends, what it takes, and what it passes on, which is all that a neighbour sends
for some site behind it. The `wants` of sites divide messages: sites with the same patterns are a
*share*, and a message is for one share and for all sites that take everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from federation.mesh import Exchange, ForwardingRule, Mesh
from federation.planning.routes import Pair, Routes

ALL_KEYS = "#"


def shares(mesh: Mesh, exchange: Exchange) -> list[frozenset[str]]:
    """Return the sets of sites that get the messages of an exchange, divided by the sites' `wants`.
    There is at least one share; a message is for the sites of exactly one.
    """
    whole: set[str] = set()
    narrowed: dict[frozenset[str], set[str]] = {}
    for name, site in mesh.sites.items():
        if exchange.reaches(name):
            patterns = site.wants.get(exchange.name)
            if patterns is None or ALL_KEYS in patterns:
                whole.add(name)
            else:
                narrowed.setdefault(frozenset(patterns), set()).add(name)
    return [frozenset(whole | some) for some in narrowed.values()] or [frozenset(whole)]


class LogSpread:
    """Spread of messages over the logs of one graph, for any exchange."""

    def __init__(self, routes: Routes) -> None:
        self._rule = routes.rule
        self._bits = {site: 1 << number for number, site in enumerate(routes.sites)}
        self._ends: dict[str, list[str]] = {site: [] for site in routes.sites}
        self._back: dict[str, list[str]] = {site: [] for site in routes.sites}
        for sender, receiver in routes.hops:
            self._ends[sender].append(receiver)
            self._back[receiver].append(sender)
        self._behind: dict[Pair, int] = {}

    def logged(self, origin: str, spread: Sequence[frozenset[str]]) -> Mapping[str, int]:
        """Return, by site, the shares whose messages from `origin` it logs, bit n for share n."""
        wanted = [self._mask(share) & ~self._bits[origin] for share in spread]
        # A message that no site takes is in its origin's log nevertheless.
        own = (1 << len(spread)) - 1
        if self._rule is ForwardingRule.COMPLETE:
            takes = {site: _hit(wanted, self._bits[site]) for site in self._ends[origin]}
            return {origin: own, **takes}
        logged, waiting = {origin: own}, {origin: None}
        onwards: dict[int, int] = {}
        while waiting:
            site = next(iter(waiting))
            del waiting[site]
            for neighbour in self._ends[site]:
                if neighbour == origin:
                    continue
                behind = self._reached_behind(site, neighbour)
                if behind not in onwards:
                    onwards[behind] = _hit(wanted, behind)
                before = logged.get(neighbour, 0)
                after = before | (logged[site] & onwards[behind])
                if after != before:
                    logged[neighbour] = after
                    waiting[neighbour] = None
        return logged

    def _mask(self, sites: frozenset[str]) -> int:
        return sum(bit for site, bit in self._bits.items() if site in sites)

    def _reached_behind(self, site: str, neighbour: str) -> int:
        """Return the sites reached from `neighbour` without coming back through `site`."""
        known = self._behind.get((site, neighbour))
        if known is not None:
            return known
        ahead = self._spread(neighbour, site, self._ends)
        mask = sum(self._bits[reached] for reached in ahead)
        # A neighbour with a way back reaches the same sites: in most graphs every neighbour.
        back = self._spread(neighbour, site, self._back) if len(ahead) > 1 else {neighbour}
        for other in self._ends[site]:
            if other in ahead and other in back:
                self._behind[site, other] = mask
        return mask

    def _spread(self, start: str, avoided: str, ends: Mapping[str, Sequence[str]]) -> set[str]:
        seen, waiting = {start}, [start]
        while waiting:
            for site in ends[waiting.pop()]:
                if site not in seen and site != avoided:
                    seen.add(site)
                    waiting.append(site)
        return seen


def _hit(wanted: Sequence[int], sites: int) -> int:
    """Return the shares that any of the sites wants, bit n for share n."""
    return sum(1 << n for n, mask in enumerate(wanted) if mask & sites)
