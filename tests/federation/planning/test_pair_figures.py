"""Hops, disjoint ways and availability of pairs, and what stands between them."""

from __future__ import annotations

import random
from dataclasses import replace

import networkx as nx
import pytest

from federation.mesh import ForwardingRule
from federation.planning.pair_figures import PairFigures
from federation.planning.routes import Hop, Routes
from federation.planning.single_points import SinglePointFinder
from federation.planning.site_classes import line
from tests.federation.graphs import by_counting, joined, random_routes, ring_of, routes_with


def with_hosts(routes: Routes, seed: int) -> Routes:
    """The same, some links meeting at a third site."""
    drawing = random.Random(seed)
    hops = dict(routes.hops)
    for pair in list(hops):
        others = [site for site in routes.sites if site not in pair]
        if others and drawing.random() < 0.3:
            hops[pair] = Hop(hops[pair].availability, "host", drawing.choice(others))
    return Routes(routes.rule, routes.sites, hops)


@pytest.mark.parametrize("seed", range(40))
def test_figures_are_those_of_the_whole_graph(seed: int) -> None:
    routes = random_routes(seed, most_sites=6, most_hops=10)
    graph = routes.graph()
    found = PairFigures(routes).figures_from("a")
    assert set(found) == nx.descendants(graph, "a")
    for site, figures in found.items():
        assert figures.hops == nx.shortest_path_length(graph, "a", site)
        assert figures.link_disjoint == nx.edge_connectivity(graph, "a", site)
        ways = list(nx.node_disjoint_paths(graph, "a", site))
        assert figures.site_disjoint == len(ways)
        counted = by_counting(routes, "a", site)
        assert figures.availability.part == pytest.approx(counted, abs=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_a_site_that_others_meet_at_takes_their_links_with_it(seed: int) -> None:
    routes = with_hosts(random_routes(seed, most_sites=5, most_hops=8), seed)
    for site, figures in PairFigures(routes).figures_from("a").items():
        counted = by_counting(routes, "a", site)
        assert figures.availability.part == pytest.approx(counted, abs=1e-12)


@pytest.mark.parametrize("seed", range(60))
def test_single_points_are_what_separates_when_it_is_lost(seed: int) -> None:
    routes = with_hosts(random_routes(seed, most_sites=6, most_hops=10), seed)
    finder = SinglePointFinder(routes)
    for site in routes.sites:
        if site == "a":
            continue
        found = finder.between("a", site)
        if not joined(routes, "a", site, ()):
            assert found is None
            continue
        assert found is not None
        assert len(found.sites) == len(set(found.sites))
        assert set(found.sites) == {
            one
            for one in routes.sites
            if one not in ("a", site) and not joined(routes, "a", site, {one})
        }
        assert set(found.lines) == {
            line(pair) for pair in routes.hops if not joined(routes, "a", site, {pair, pair[::-1]})
        }


def test_the_ways_that_share_no_site_are_named() -> None:
    figures = PairFigures(ring_of("a-b", "b-c", "c-a", "a-d", "d-c"))
    assert figures.disjoint_ways("a", "c") == [["a", "c"], ["a", "b", "c"], ["a", "d", "c"]]
    assert figures.shortest("b", "d") == ["b", "a", "d"]


def test_in_a_complete_graph_only_the_direct_link_counts() -> None:
    routes = replace(ring_of("a-b", "b-c", "c-a", part=0.9), rule=ForwardingRule.COMPLETE)
    figures = PairFigures(routes)
    found = figures.figures_from("a")["b"]
    assert (found.hops, found.link_disjoint, found.site_disjoint) == (1, 1, 1)
    assert found.availability.part == 0.9
    assert figures.disjoint_ways("a", "b") == [["a", "b"]]
    points = SinglePointFinder(routes).between("a", "b")
    assert points is not None
    assert (points.sites, points.lines) == ((), (("a", "b"),))


def test_what_is_too_tangled_is_sampled_and_what_hangs_on_it_multiplied() -> None:
    lines = [f"s{a}-s{b}" for a in range(8) for b in range(a)]
    figures = PairFigures(ring_of(*lines, "s0-leaf", part=0.5))
    tangled = figures.figures_from("s1")
    assert not tangled["s2"].availability.is_exact
    leaf = tangled["leaf"].availability
    assert not leaf.is_exact
    assert leaf.part == pytest.approx(0.5 * tangled["s0"].availability.part)
    exact = PairFigures(ring_of(*lines, "s0-leaf", part=0.5), most_uncertain=28)
    wanted = exact.figures_from("s1")["leaf"].availability
    assert wanted.is_exact
    assert abs(wanted.part - leaf.part) <= 4 * leaf.standard_error


def test_many_sites_that_others_meet_at_are_sampled() -> None:
    hosts = [f"h{n}" for n in range(6)]
    hops = {("a", f"m{n}"): Hop(1.0, "host", host) for n, host in enumerate(hosts)}
    hops |= {(f"m{n}", "z"): Hop(0.5) for n in range(6)}
    hops |= {("a", host): Hop(1.0) for host in hosts}
    found = PairFigures(routes_with(hops, dict.fromkeys(hosts, 0.5))).figures_from("a")["z"]
    wanted = 1 - (1 - 0.25) ** 6
    assert abs(found.availability.part - wanted) <= 4 * found.availability.standard_error
