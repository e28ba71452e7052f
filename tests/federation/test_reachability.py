"""Who can be reached from where."""

from __future__ import annotations

from itertools import pairwise

from federation.mesh import ForwardingRule
from federation.reachability import Reach, neighbours, reached_from

RING, COMPLETE = ForwardingRule.RING, ForwardingRule.COMPLETE


def test_under_the_rings_rule_any_path_will_do() -> None:
    graph = neighbours([("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")])
    assert reached_from("a", graph, RING) == {"a", "b", "c"}
    assert reached_from("d", graph, RING) == {"a", "b", "c", "d"}


def test_under_the_complete_graphs_rule_only_a_direct_link_will_do() -> None:
    graph = neighbours([("a", "b"), ("b", "c")])
    assert reached_from("a", graph, COMPLETE) == {"a", "b"}


def test_every_pair_without_a_way_is_told() -> None:
    reach = Reach([("a", "b"), ("b", "c")], RING)
    assert list(reach.missing(["a", "c"], ["a", "b", "c"])) == [("c", "a"), ("c", "b")]
    assert list(reach.missing(["a"], ["b", "nowhere"])) == [("a", "nowhere")]


def test_a_site_without_any_link_is_reached_by_itself_only() -> None:
    assert list(Reach([], RING).missing(["a"], ["a", "b"])) == [("a", "b")]


def test_in_a_strongly_connected_graph_nothing_is_missing() -> None:
    sites = [f"s{n}" for n in range(2000)]
    reach = Reach([*pairwise(sites), (sites[-1], sites[0])], RING)
    assert list(reach.missing(sites, sites)) == []
    assert list(reach.missing([*sites, "x"], ["s0"])) == [("x", "s0")]
