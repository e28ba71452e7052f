"""Blocks of a graph: subgraphs that touch the rest at single sites only. Pure.

All ways between two sites cross the same blocks in the same order. So each block is computed by
itself, once for all pairs of twins, and a tree, whose blocks are single lines, is a product of its
links.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

import networkx as nx
from networkx.algorithms.connectivity import (
    build_auxiliary_edge_connectivity,
    build_auxiliary_node_connectivity,
    local_edge_connectivity,
    local_node_connectivity,
)
from networkx.algorithms.flow import build_residual_network

from federation.planning.availability import Availability
from federation.planning.reliability import SEED, Samples, TooManyUncertain, availability_between
from federation.planning.routes import Routes
from federation.planning.site_classes import class_of, twin_classes, with_availability


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of the ways from one site to another. Disjoint ways share no link, or no site
    between.
    """

    hops: int
    link_disjoint: int
    site_disjoint: int
    availability: Availability

    def and_then(self, site: float, onwards: Figures) -> Figures:
        """Return the figures on through a site of availability `site`, which all ways cross."""
        here = Availability(site).and_then(onwards.availability)
        return Figures(
            self.hops + onwards.hops,
            min(self.link_disjoint, onwards.link_disjoint),
            1,
            self.availability.and_then(here),
        )


class Blocks:
    """All blocks of one graph; each pair of a block is computed on demand."""

    def __init__(self, routes: Routes, most_uncertain: int) -> None:
        self._sites = routes.sites
        self._of: dict[str, list[_Block]] = {site: [] for site in routes.sites}
        ends: dict[str, dict[str, None]] = {site: {} for site in routes.sites}
        for sender, receiver in routes.hops:
            ends[sender][receiver] = ends[receiver][sender] = None
        order = {site: number for number, site in enumerate(routes.sites)}
        together: nx.Graph[str] = nx.Graph()
        together.add_edges_from(routes.hops)
        # networkx's types are too wide here.
        blocks = cast("list[set[str]]", list(nx.biconnected_components(together)))
        for number, members in enumerate(blocks):
            sites = sorted(members, key=order.__getitem__)
            # Only the sites' own links are scanned: there may be as many blocks as links.
            hops = {
                (site, other): routes.hops[site, other]
                for site in sites
                for other in (members if len(members) < len(ends[site]) else ends[site])
                if other in members and (site, other) in routes.hops
            }
            part = Routes(routes.rule, {site: routes.sites[site] for site in sites}, hops)
            block = _Block(part, SEED + number, most_uncertain)
            for site in sites:
                self._of[site].append(block)

    def figures_from(self, origin: str) -> Mapping[str, Figures]:
        """Return the figures of every site that can be reached from `origin`."""
        found: dict[str, Figures] = {}
        waiting: list[tuple[str, _Block | None]] = [(origin, None)]
        while waiting:
            entry, behind = waiting.pop()
            so_far, part = found.get(entry), self._sites[entry]
            for block in self._of[entry]:
                if block is behind:
                    continue
                for site in block.sites:
                    if site == entry:
                        continue
                    across = block.figures(entry, site)
                    if across is not None:
                        found[site] = across if so_far is None else so_far.and_then(part, across)
                        if len(self._of[site]) > 1:
                            waiting.append((site, block))
        return found


class _Block:
    def __init__(self, routes: Routes, seed: int, most_uncertain: int) -> None:
        self._routes = routes
        self._seed = seed
        self._most = most_uncertain
        self.sites: Collection[str] = routes.sites
        self._known: dict[tuple[str, str], Figures | None] = {}
        self._tangled: _Tangled | None = None

    def figures(self, entry: str, exit: str) -> Figures | None:
        """Return the figures across the block, or None if its links do not lead from `entry` to
        `exit`.
        """
        if len(self.sites) == 2:
            hop = self._routes.hops.get((entry, exit))
            return None if hop is None else Figures(1, 1, 1, Availability(hop.availability))
        if self._tangled is None:
            self._tangled = _Tangled(self._routes)
        pair = self._tangled.like(entry, exit)
        if pair not in self._known:
            hops = self._tangled.hops(*pair)
            self._known[pair] = None if hops is None else self._worked_out(pair, hops)
        return self._known[pair]

    def _worked_out(self, pair: tuple[str, str], hops: int) -> Figures:
        assert self._tangled is not None
        links, sites = self._tangled.disjoint(*pair)
        try:
            part = Availability(availability_between(self._routes, *pair, self._most))
        except TooManyUncertain:
            part = self._tangled.sampled(pair[0], self._seed)[pair[1]]
        return Figures(hops, links, sites, part)


class _Tangled:
    """Graph and caches of a block that is more than a line, shared by its pairs."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._graph = routes.graph()
        self._classes = twin_classes(routes, routes.sites.__getitem__, with_availability)
        self._class = class_of(self._classes)
        # If all lines are equal in both directions, so are all pairs.
        parts = {pair: hop.availability for pair, hop in routes.hops.items()}
        self._is_even = all(parts.get((b, a)) == part for (a, b), part in parts.items())
        self._hops: dict[str, dict[str, int]] = {}
        self._flow: tuple[Any, ...] = ()
        self._samples: Samples | None = None
        self._sampled: dict[str, Mapping[str, Availability]] = {}

    def like(self, entry: str, exit: str) -> tuple[str, str]:
        """Return the pair of twins that represents a pair."""
        numbers = self._class[entry], self._class[exit]
        if self._is_even:
            numbers = min(numbers), max(numbers)
        first, last = (self._classes[number] for number in numbers)
        return first[0], last[1] if first is last else last[0]

    def hops(self, entry: str, exit: str) -> int | None:
        if entry not in self._hops:
            self._hops[entry] = dict(nx.single_source_shortest_path_length(self._graph, entry))
        return self._hops[entry].get(exit)

    def disjoint(self, entry: str, exit: str) -> tuple[int, int]:
        """Return the greatest number of ways that share no link, and that share no site."""
        if not self._flow:
            links = build_auxiliary_edge_connectivity(self._graph)
            sites = build_auxiliary_node_connectivity(self._graph)
            self._flow = (
                links,
                build_residual_network(links, "capacity"),
                sites,
                build_residual_network(sites, "capacity"),
            )
        links, links_left, sites, sites_left = self._flow
        graph = self._graph
        by_link = local_edge_connectivity(graph, entry, exit, auxiliary=links, residual=links_left)
        by_site = local_node_connectivity(graph, entry, exit, auxiliary=sites, residual=sites_left)
        return int(by_link), int(by_site)

    def sampled(self, entry: str, seed: int) -> Mapping[str, Availability]:
        if self._samples is None:
            self._samples = Samples(self._routes, seed=seed)
        if entry not in self._sampled:
            self._sampled[entry] = self._samples.availability_from(entry)
        return self._sampled[entry]
