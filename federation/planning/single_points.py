"""Sites and lines whose loss alone separates two sites that are both up; like ones in one row.
Pure.

The sites that every way from an origin to another site crosses are that site's dominators: one tree
for each origin gives them for all destinations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import networkx as nx

from federation.mesh import Exchange, ForwardingRule
from federation.planning.pair_figures import Track, Wanted, class_pairs, classes_for
from federation.planning.routes import Pair, Routes
from federation.planning.site_classes import SiteGroups, class_of, line, shape_only


@dataclass(frozen=True, slots=True)
class SinglePoints:
    """Single points of a pair: names of sites, lines as their two ends in order."""

    sites: tuple[str, ...] = ()
    lines: tuple[Pair, ...] = ()


@dataclass(slots=True)
class _Tree:
    above: Mapping[str, str]
    lost: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Sites, by host, not reached without the host."""
    only_ways: dict[str, bool] = field(default_factory=dict)
    """Flag by site: True if the link from its dominator is the only way in."""


class SinglePointFinder:
    """Finder for the pairs of one graph, with each origin's tree built once."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._graph = routes.graph()
        self._trees: dict[str, _Tree] = {}

    def between(self, origin: str, destination: str) -> SinglePoints | None:
        """Return the single points of a pair, or None if no way leads there."""
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
        """Return True if every way to `site` ends with the link from `above`: other senders are
        behind `site`.
        """
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


Classes = Sequence[tuple[str, ...]]
Element = tuple[int, ...]
"""Class of a site, or the classes of a line's two ends, in order."""
GroupPair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class PointRow:
    """Sites of a group, or lines between two groups, that separate as many pairs each."""

    groups: tuple[int, ...]
    """Group of the sites, or the groups at either end of the lines."""
    count: int
    """Number of such sites or lines."""
    example: tuple[str, ...]
    """A site of the row, or the two ends of a line of the row."""
    between: Mapping[GroupPair, int]
    """Pairs that each of them separates by its loss alone: their number, by their groups."""

    @property
    def pairs(self) -> int:
        """Number of pairs that the loss of a single site or line separates."""
        return sum(self.between.values())


def point_rows(
    routes: Routes,
    exchanges: Sequence[Exchange],
    groups: SiteGroups,
    wanted: Wanted,
    track: Track = iter,
) -> list[PointRow]:
    """Return all sites and lines that separate a wanted pair, those that separate most pairs
    first.
    """
    met, classes = _met(routes, exchanges, groups, wanted, track)
    return sorted(_rows(met, classes, groups), key=lambda row: (-row.pairs, row.groups))


def all_points(
    routes: Routes, exchanges: Sequence[Exchange], groups: SiteGroups, wanted: Wanted
) -> SinglePoints:
    """Return the same sites and lines, not grouped."""
    met, classes = _met(routes, exchanges, groups, wanted, iter)
    sites = [site for element in met if len(element) == 1 for site in classes[element[0]]]
    lines = {
        line((first, other))
        for element in met
        if len(element) == 2
        for first in classes[element[0]]
        for other in classes[element[1]]
        if first != other
    }
    return SinglePoints(tuple(sites), tuple(sorted(lines)))


def _met(
    routes: Routes,
    exchanges: Sequence[Exchange],
    groups: SiteGroups,
    wanted: Wanted,
    track: Track,
) -> tuple[dict[Element, dict[GroupPair, int]], Classes]:
    """Return the classes of the single points between wanted pairs, with the pairs. The finding for
    one pair of two classes holds for all their pairs, each with another member of the same class
    between, so that together every member is met equally often.
    """
    finder = SinglePointFinder(routes)
    classes = classes_for(routes, exchanges, groups, shape_only)
    number = class_of(classes)
    met: dict[Element, dict[GroupPair, int]] = {}
    for origins in track(classes):
        origin = origins[0]
        for destination, _, pairs in class_pairs(origins, classes, wanted):
            points = finder.between(origin, destination)
            if points is None:
                continue
            ends = groups.number[origin], groups.number[destination]
            elements: list[Element] = [(number[site],) for site in points.sites]
            elements += [_ordered(number[first], number[other]) for first, other in points.lines]
            for element in elements:
                between = met.setdefault(element, {})
                between[ends] = between.get(ends, 0) + pairs
    return met, classes


def _rows(
    met: Mapping[Element, Mapping[GroupPair, int]], classes: Classes, groups: SiteGroups
) -> list[PointRow]:
    found: dict[tuple[object, ...], PointRow] = {}
    for element, total in met.items():
        size = _size(element, classes)
        between = {ends: pairs // size for ends, pairs in total.items()}
        numbers = tuple(groups.number[classes[number][0]] for number in element)
        key = (_ordered(*numbers), frozenset(between.items()))
        before = found.get(key)
        count = size + (before.count if before else 0)
        example = before.example if before else _example(element, classes)
        found[key] = PointRow(_ordered(*numbers), count, example, between)
    return list(found.values())


def _size(element: Element, classes: Classes) -> int:
    first, *rest = (len(classes[number]) for number in element)
    if not rest:
        return first
    return first * (first - 1) // 2 if element[0] == element[1] else first * rest[0]


def _example(element: Element, classes: Classes) -> tuple[str, ...]:
    if len(element) == 2 and element[0] == element[1]:
        return classes[element[0]][:2]
    return tuple(classes[number][0] for number in element)


def _ordered(*numbers: int) -> tuple[int, ...]:
    return tuple(sorted(numbers))
