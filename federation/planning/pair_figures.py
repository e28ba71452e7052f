"""Figures of pairs of sites: hops, disjoint ways, availability; and pairs with equal figures in
rows. Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import networkx as nx

from federation.mesh import Exchange, ForwardingRule
from federation.planning.availability import Availability
from federation.planning.blocks import Blocks, Figures
from federation.planning.reliability import MOST_UNCERTAIN, Samples
from federation.planning.routes import Pair, Routes
from federation.planning.site_classes import HopKind, SiteGroups, twin_classes, with_availability

MOST_HOSTS = 4
"""Limit of hosts that may fail up to which each combination of failures is computed by itself."""


class PairFigures:
    """Figures of the pairs of one graph. `most_uncertain`: see `reliability`."""

    def __init__(self, routes: Routes, *, most_uncertain: int = MOST_UNCERTAIN) -> None:
        self._routes = routes
        self._graph = routes.graph()
        self._blocks = Blocks(routes, most_uncertain)
        self._hosts = _Hosts(routes, most_uncertain) if routes.hosts else None

    def figures_from(self, origin: str) -> Mapping[str, Figures]:
        """Return the figures of every site that messages of `origin` get to."""
        if self._routes.rule is ForwardingRule.COMPLETE:
            return {
                receiver: Figures(1, 1, 1, self._direct(origin, receiver))
                for receiver in self._graph.successors(origin)
            }
        found = self._blocks.figures_from(origin)
        return found if self._hosts is None else self._hosts.corrected(origin, found)

    def shortest(self, origin: str, destination: str) -> list[str]:
        """Return the sites of a way with the fewest hops, both ends included; empty if there is no
        way.
        """
        if self._routes.rule is ForwardingRule.COMPLETE:
            return [origin, destination] if self._graph.has_edge(origin, destination) else []
        if not nx.has_path(self._graph, origin, destination):
            return []
        return nx.shortest_path(self._graph, origin, destination)

    def disjoint_ways(self, origin: str, destination: str) -> list[list[str]]:
        """Return the most ways that share no site between, the shortest first."""
        if self._routes.rule is ForwardingRule.COMPLETE:
            way = self.shortest(origin, destination)
            return [way] if way else []
        if not nx.has_path(self._graph, origin, destination):
            return []
        ways = nx.node_disjoint_paths(self._graph, origin, destination)
        return sorted(map(list, ways), key=len)

    def _direct(self, origin: str, receiver: str) -> Availability:
        hop = self._routes.hops[origin, receiver]
        # The ends of the pair are taken as given, a third site's broker is not.
        host = 1.0 if hop.host is None else self._routes.sites[hop.host]
        return Availability(hop.availability * host)


@dataclass(frozen=True, slots=True)
class _Case:
    """A combination of working and failed hosts, and its part of the time."""

    weight: float
    down: frozenset[str]
    blocks: Blocks


class _Hosts:
    """Hosts: sites that others meet at, which fail together with links between those others."""

    def __init__(self, routes: Routes, most_uncertain: int) -> None:
        self._routes = routes
        self._unsure = [host for host in sorted(routes.hosts) if routes.sites[host] < 1]
        self._samples = Samples(routes) if len(self._unsure) > MOST_HOSTS else None
        self._cases = [] if self._samples else list(self._all_cases(most_uncertain))

    def corrected(self, origin: str, found: Mapping[str, Figures]) -> dict[str, Figures]:
        """Return the figures, corrected for their dependence on hosts."""
        parts = self._parts(origin)
        needed = {
            host: self._reached_without(host, origin) for host in self._routes.hosts - {origin}
        }
        figures = {}
        for site, own in found.items():
            hangs = any(site != host and site not in left for host, left in needed.items())
            figures[site] = replace(
                own,
                availability=parts.get(site, own.availability),
                site_disjoint=1 if hangs else own.site_disjoint,
            )
        return figures

    def _reached_without(self, host: str, origin: str) -> set[str]:
        graph = self._routes.without({host}).graph()
        return {origin, *nx.descendants(graph, origin)}

    def _parts(self, origin: str) -> Mapping[str, Availability]:
        if self._samples is not None:
            return self._samples.availability_from(origin)
        parts: dict[str, float] = {}
        variances: dict[str, float] = {}
        given: dict[frozenset[str], float] = {}
        for case in self._cases:
            if origin in case.down:
                continue  # both ends are taken as given
            given[case.down] = case.weight
            for site, across in case.blocks.figures_from(origin).items():
                parts[site] = parts.get(site, 0) + case.weight * across.availability.part
                error = case.weight * across.availability.standard_error
                variances[site] = variances.get(site, 0) + error**2
        averages = {}
        for site, part in parts.items():
            weight = sum(weight for down, weight in given.items() if site not in down)
            averages[site] = Availability(part / weight, variances[site] ** 0.5 / weight)
        return averages

    def _all_cases(self, most_uncertain: int) -> Iterator[_Case]:
        for works in itertools.product((True, False), repeat=len(self._unsure)):
            state = dict(zip(self._unsure, works, strict=True))
            weight = 1.0
            for host, up in state.items():
                part = self._routes.sites[host]
                weight *= part if up else 1 - part
            down = frozenset(host for host, up in state.items() if not up)
            left = self._routes.without(down)
            certain = {site: 1.0 if site in state else part for site, part in left.sites.items()}
            known = Routes(left.rule, certain, left.hops)
            yield _Case(weight, down, Blocks(known, most_uncertain))


Track = Callable[[Sequence[tuple[str, ...]]], Iterable[tuple[str, ...]]]
"""Iterates over its argument and may show the progress."""
Wanted = Callable[[str, str], bool]
"""Callable: True if some exchange sends from the first site to the second."""


@dataclass(frozen=True, slots=True)
class PairRow:
    """Pairs of two groups. `figures` are those of the worst joined pair, `worst`, or None without a
    way. `both_ways`: the reverse pairs have the same figures, and are counted.
    """

    origins: int
    destinations: int
    pairs: int
    worst: Pair
    figures: Figures | None
    best: Availability | None
    both_ways: bool = False


def wanted_by(exchanges: Sequence[Exchange], sites: Iterable[str], *, every: bool) -> Wanted:
    """Return a test for pairs that one of the exchanges joins; `every`: for all pairs."""
    leaves: dict[str, int] = {}
    reaches: dict[str, int] = {}
    bits = {1 << n: exchange for n, exchange in enumerate(exchanges)}
    for site in sites:
        leaves[site] = sum(bit for bit, exchange in bits.items() if exchange.leaves(site))
        reaches[site] = sum(bit for bit, exchange in bits.items() if exchange.reaches(site))
    return lambda origin, destination: every or bool(leaves[origin] & reaches[destination])


def classes_for(
    routes: Routes, exchanges: Sequence[Exchange], groups: SiteGroups, kind: HopKind
) -> list[tuple[str, ...]]:
    """Return twins of one group that the exchanges treat alike."""

    def colour(site: str) -> tuple[object, ...]:
        part = tuple((exchange.leaves(site), exchange.reaches(site)) for exchange in exchanges)
        sure = routes.sites[site] if kind is with_availability else None
        return groups.number[site], part, sure

    return twin_classes(routes, colour, kind)


def class_pairs(
    origins: Sequence[str], classes: Iterable[Sequence[str]], wanted: Wanted
) -> Iterator[tuple[str, Sequence[str], int]]:
    """Yield, for the origin that represents a class, the representative and members of each class
    of destinations, and the number of pairs of the two classes.
    """
    origin = origins[0]
    for destinations in classes:
        same = destinations is origins
        pairs = len(origins) * (len(destinations) - same)
        if pairs and wanted(origin, destinations[-1]):
            yield destinations[-1], destinations, pairs


def pair_rows(
    routes: Routes,
    exchanges: Sequence[Exchange],
    groups: SiteGroups,
    wanted: Wanted,
    track: Track = iter,
) -> list[PairRow]:
    """Return the rows of all wanted pairs, the worst joined first."""
    figures = PairFigures(routes)
    classes = classes_for(routes, exchanges, groups, with_availability)
    found: dict[tuple[object, ...], PairRow] = {}
    for origins in track(classes):
        origin = origins[0]
        from_here = figures.figures_from(origin)
        for destination, _, pairs in class_pairs(origins, classes, wanted):
            row = _row(groups, (origin, destination), pairs, from_here.get(destination))
            key = _key(row)
            before = found.get(key)
            found[key] = row if before is None else _together(before, row)
    return sorted(_both_ways(found), key=_worst_first)


def _row(groups: SiteGroups, pair: Pair, pairs: int, figures: Figures | None) -> PairRow:
    ends = groups.number[pair[0]], groups.number[pair[1]]
    return PairRow(*ends, pairs, pair, figures, figures.availability if figures else None)


def _key(row: PairRow) -> tuple[object, ...]:
    figures = row.figures
    shape = figures and (figures.hops, figures.link_disjoint, figures.site_disjoint)
    return row.origins, row.destinations, shape


def _together(first: PairRow, other: PairRow) -> PairRow:
    worst = first
    pairs = first.pairs + other.pairs
    if first.figures is None or other.figures is None:
        return replace(first, pairs=pairs)
    if other.figures.availability.part < first.figures.availability.part:
        worst = other
    best = max((first.best, other.best), key=lambda figure: figure.part if figure else 0.0)
    return replace(worst, pairs=pairs, best=best)


def _both_ways(found: dict[tuple[object, ...], PairRow]) -> Iterator[PairRow]:
    done: set[tuple[object, ...]] = set()
    for key, row in found.items():
        if key in done:
            continue
        back_key = (row.destinations, row.origins, key[2])
        back = found.get(back_key)
        if back is not None and back_key != key and _same(row, back):
            done.add(back_key)
            yield replace(row, pairs=row.pairs + back.pairs, both_ways=True)
        else:
            yield row


def _same(row: PairRow, back: PairRow) -> bool:
    def parts(side: PairRow) -> tuple[float, ...]:
        if side.figures is None or side.best is None:
            return ()
        # Products in another order differ in the last digits, samples within their error.
        error = side.figures.availability.standard_error
        digits = 2 if error else 12
        return round(side.figures.availability.part, digits), round(side.best.part, digits)

    return row.pairs == back.pairs and parts(row) == parts(back)


def _worst_first(row: PairRow) -> tuple[float, int, int]:
    part = row.figures.availability.part if row.figures else -1.0
    return round(part, 12), row.origins, row.destinations
