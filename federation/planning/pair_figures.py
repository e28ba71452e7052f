"""How well two sites are joined: hops, disjoint ways, availability; under either rule. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import networkx as nx

from federation.mesh import ForwardingRule
from federation.planning.availability import Availability
from federation.planning.blocks import Blocks, Figures
from federation.planning.reliability import MOST_UNCERTAIN
from federation.planning.reliability_samples import Samples
from federation.planning.routes import Routes

MOST_HOSTS = 4
"""Sites that may fail and that others meet at, up to which every case is worked out by itself."""


class PairFigures:
    """Answers for the pairs of one graph. `most_uncertain`: see `reliability`."""

    def __init__(self, routes: Routes, *, most_uncertain: int = MOST_UNCERTAIN) -> None:
        self._routes = routes
        self._graph = routes.graph()
        self._blocks = Blocks(routes, most_uncertain)
        self._hosts = _Hosts(routes, most_uncertain) if routes.hosts else None

    def figures_from(self, origin: str) -> Mapping[str, Figures]:
        """Of every site that messages of `origin` get to."""
        if self._routes.rule is ForwardingRule.COMPLETE:
            return {
                receiver: Figures(1, 1, 1, self._direct(origin, receiver))
                for receiver in self._graph.successors(origin)
            }
        found = self._blocks.figures_from(origin)
        return found if self._hosts is None else self._hosts.heeded(origin, found)

    def shortest(self, origin: str, destination: str) -> list[str]:
        """The sites of one way of the fewest hops, both ends included; empty: there is none."""
        if self._routes.rule is ForwardingRule.COMPLETE:
            return [origin, destination] if self._graph.has_edge(origin, destination) else []
        if not nx.has_path(self._graph, origin, destination):
            return []
        return nx.shortest_path(self._graph, origin, destination)

    def disjoint_ways(self, origin: str, destination: str) -> list[list[str]]:
        """As many ways as there are that share no site between, the shortest first."""
        if self._routes.rule is ForwardingRule.COMPLETE:
            way = self.shortest(origin, destination)
            return [way] if way else []
        if not nx.has_path(self._graph, origin, destination):
            return []
        ways = nx.node_disjoint_paths(self._graph, origin, destination)
        return sorted(map(list, ways), key=len)

    def _direct(self, origin: str, receiver: str) -> Availability:
        hop = self._routes.hops[origin, receiver]
        # An end of the pair is taken as given, a third site's broker is not.
        host = 1.0 if hop.host is None else self._routes.sites[hop.host]
        return Availability(hop.availability * host)


@dataclass(frozen=True, slots=True)
class _Case:
    """Some hosts work, the others do not: so much of the time."""

    weight: float
    down: frozenset[str]
    blocks: Blocks


class _Hosts:
    """Sites that others meet at, and so fail together with links that do not touch them."""

    def __init__(self, routes: Routes, most_uncertain: int) -> None:
        self._routes = routes
        self._unsure = [host for host in sorted(routes.hosts) if routes.sites[host] < 1]
        self._samples = Samples(routes) if len(self._unsure) > MOST_HOSTS else None
        self._cases = [] if self._samples else list(self._all_cases(most_uncertain))

    def heeded(self, origin: str, found: Mapping[str, Figures]) -> dict[str, Figures]:
        """The figures with what depends on hosts put right."""
        parts = self._parts(origin)
        needed = {
            host: self._reached_without(host, origin) for host in self._routes.hosts - {origin}
        }
        said = {}
        for site, one in found.items():
            hangs = any(site != host and site not in left for host, left in needed.items())
            said[site] = replace(
                one,
                availability=parts.get(site, one.availability),
                site_disjoint=1 if hangs else one.site_disjoint,
            )
        return said

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
            for site, one in case.blocks.figures_from(origin).items():
                parts[site] = parts.get(site, 0) + case.weight * one.availability.part
                error = case.weight * one.availability.standard_error
                variances[site] = variances.get(site, 0) + error**2
        said = {}
        for site, part in parts.items():
            weight = sum(one for down, one in given.items() if site not in down)
            said[site] = Availability(part / weight, variances[site] ** 0.5 / weight)
        return said

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
