"""Sites and lines whose loss alone separates two sites that are both up. Pure.

What every way from an origin to another site crosses are that site's dominators: one tree an
origin tells them for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import networkx as nx

from federation.mesh import ForwardingRule
from federation.planning.routes import Pair, Routes
from federation.planning.site_classes import line


@dataclass(frozen=True, slots=True)
class SinglePoints:
    """What stands between one pair: names of sites, lines as their two ends in order."""

    sites: tuple[str, ...] = ()
    lines: tuple[Pair, ...] = ()


@dataclass(slots=True)
class _Tree:
    above: Mapping[str, str]
    lost: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By host: what is not reached without it."""
    only_ways: dict[str, bool] = field(default_factory=dict)
    """By site: whether the link from the one above is the only way in."""


class SinglePointFinder:
    """Answers for the pairs of one graph, working each origin out once."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._graph = routes.graph()
        self._trees: dict[str, _Tree] = {}

    def between(self, origin: str, destination: str) -> SinglePoints | None:
        """None if no way leads there at all."""
        if self._routes.rule is ForwardingRule.COMPLETE:
            return self._direct(origin, destination)
        if origin not in self._trees:
            self._trees[origin] = self._tree(origin)
        tree = self._trees[origin]
        if destination not in tree.above:
            return None
        sites: list[str] = []
        lines: list[Pair] = []
        site = destination
        while site != origin:
            above = tree.above[site]
            if self._is_only_way_in(above, site, tree):
                lines.append(line((above, site)))
            if above != origin:
                sites.append(above)
            site = above
        sites += (
            host
            for host, lost in tree.lost.items()
            if destination in lost and host not in (destination, *sites)
        )
        return SinglePoints(tuple(sites), tuple(lines))

    def _direct(self, origin: str, destination: str) -> SinglePoints | None:
        hop = self._routes.hops.get((origin, destination))
        if hop is None:
            return None
        host = () if hop.host is None else (hop.host,)
        return SinglePoints(host, (line((origin, destination)),))

    def _tree(self, origin: str) -> _Tree:
        above = dict(nx.immediate_dominators(self._graph, origin))
        above[origin] = origin
        lost = {}
        for host in self._routes.hosts - {origin}:
            graph = self._routes.without({host}).graph()
            reached = {origin, *nx.descendants(graph, origin)}
            lost[host] = frozenset(above.keys() - reached)
        return _Tree(above, lost)

    def _is_only_way_in(self, above: str, site: str, tree: _Tree) -> bool:
        """Whether every way to `site` ends with that link: who else leads there is behind it."""
        if site not in tree.only_ways:
            tree.only_ways[site] = self._graph.has_edge(above, site) and all(
                other == above or other not in tree.above or _is_below(other, site, tree.above)
                for other in self._graph.predecessors(site)
            )
        return tree.only_ways[site]


def _is_below(site: str, top: str, above: Mapping[str, str]) -> bool:
    while True:
        if site == top:
            return True
        if above[site] == site:
            return False
        site = above[site]
