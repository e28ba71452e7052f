"""Graphs for tests, and what is true of them by counting every state."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping

import networkx as nx

from federation.mesh import ForwardingRule
from federation.planning.routes import Hop, Pair, Routes


def ring_of(*lines: str, part: float = 0.99, sites: Mapping[str, float] | None = None) -> Routes:
    """Lines that go both ways, each as good as `part`: `a-b`; `a>b` goes one way. Sites always
    work, unless `sites` says otherwise. The ring's rule.
    """
    hops: dict[Pair, Hop] = {}
    for one in lines:
        sender, receiver = one.replace(">", "-").split("-")
        hops[sender, receiver] = Hop(part)
        if ">" not in one:
            hops[receiver, sender] = Hop(part)
    return routes_with(hops, sites or {})


def routes_with(
    hops: Mapping[Pair, Hop],
    sites: Mapping[str, float],
    rule: ForwardingRule = ForwardingRule.RING,
) -> Routes:
    names = dict.fromkeys(site for pair in hops for site in pair)
    return Routes(rule, {**dict.fromkeys(names, 1.0), **sites}, hops)


def random_routes(seed: int, *, most_sites: int = 6, most_hops: int = 9) -> Routes:
    """A small directed graph with sites `a`, `b` and others, and links that may have hosts."""
    drawing = random.Random(seed)
    names = "abcdefghij"[: drawing.randint(2, most_sites)]
    pairs = list(itertools.permutations(names, 2))
    drawing.shuffle(pairs)
    sites = {name: drawing.choice([1.0, 0.8, drawing.random()]) for name in names}
    hops = {
        pair: Hop(drawing.choice([0.5, 0.9, 1.0, drawing.random()]))
        for pair in pairs[: drawing.randint(1, most_hops)]
    }
    return Routes(ForwardingRule.RING, sites, hops)


def by_counting(routes: Routes, origin: str, destination: str) -> float:
    """The availability of a pair, as the sum over every state of all that may fail."""
    unsure: list[str | Pair] = [
        site
        for site, part in routes.sites.items()
        if part < 1 and site not in (origin, destination)
    ]
    unsure += [pair for pair, hop in routes.hops.items() if hop.availability < 1]
    total = 0.0
    for state in itertools.product((True, False), repeat=len(unsure)):
        weight, down = 1.0, set[str | Pair]()
        for one, works in zip(unsure, state, strict=True):
            part = routes.sites[one] if isinstance(one, str) else routes.hops[one].availability
            weight *= part if works else 1 - part
            if not works:
                down.add(one)
        if joined(routes, origin, destination, down):
            total += weight
    return total


def joined(routes: Routes, origin: str, destination: str, down: Iterable[str | Pair]) -> bool:
    """Whether a way is left when those sites and links are down."""
    down = set(down)
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from((origin, destination))
    graph.add_edges_from(
        pair for pair, hop in routes.hops.items() if not down.intersection((pair, *pair, hop.host))
    )
    return bool(nx.has_path(graph, origin, destination))
