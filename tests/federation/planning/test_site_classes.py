"""Which sites are twins, which look alike."""

from __future__ import annotations

from federation.planning.routes import Hop, Routes
from federation.planning.site_classes import (
    alike_classes,
    shape_only,
    twin_classes,
    with_availability,
)
from tests.federation.graphs import ring_of, routes_with


def twins(routes: Routes) -> list[tuple[str, ...]]:
    return twin_classes(routes, routes.sites.__getitem__, with_availability)


def alike(routes: Routes) -> list[tuple[str, ...]]:
    return alike_classes(routes, lambda _: None, shape_only)


def test_branches_of_one_hub_are_twins() -> None:
    assert twins(ring_of("head-a", "head-b", "head-c")) == [("head",), ("a", "b", "c")]


def test_all_of_a_complete_graph_are_twins() -> None:
    assert twins(ring_of("a-b", "b-c", "c-a")) == [("a", "b", "c")]


def test_links_of_other_kinds_or_other_sites_make_no_twins() -> None:
    hub = ring_of("head-a", "head-b", "head>c")
    assert twins(hub) == [("head",), ("a", "b"), ("c",)]
    better = routes_with({**hub.hops, ("head", "b"): Hop(0.5)}, {})
    assert twins(better) == [("head",), ("a",), ("b",), ("c",)]
    dials = routes_with({**hub.hops, ("head", "b"): Hop(0.99, "sender")}, {})
    assert twins(dials) == [("head",), ("a",), ("b",), ("c",)]
    assert twins(ring_of("head-a", "head-b", sites={"b": 0.9})) == [("head",), ("a",), ("b",)]


def test_a_site_that_others_meet_at_has_no_twin() -> None:
    hub = ring_of("head-a", "head-b", "head-c")
    meets = routes_with({**hub.hops, ("a", "c"): Hop(0.99, "host", "b")}, {})
    assert all(len(one) == 1 for one in twins(meets))


def test_twins_at_either_end_of_a_square_are_told_apart_from_neighbours() -> None:
    assert twins(ring_of("a-b", "b-c", "c-d", "d-a")) == [("a", "c"), ("b", "d")]


def test_branches_of_different_regions_look_alike_and_are_no_twins() -> None:
    tree = ring_of("head-r1", "head-r2", "r1-a", "r1-b", "r2-c", "r2-d")
    assert len(twins(tree)) == 5
    assert alike(tree) == [("head",), ("r1", "r2"), ("a", "b", "c", "d")]


def test_what_is_around_however_far_tells_sites_apart() -> None:
    uneven = ring_of("head-r1", "head-r2", "r1-a", "r1-b", "r2-c")
    assert alike(uneven) == [("head",), ("r1",), ("r2",), ("a", "b"), ("c",)]
