"""How much of the time two sites are joined."""

from __future__ import annotations

import itertools

import networkx as nx
import pytest

from federation.planning.reliability import (
    MOST_UNCERTAIN,
    Samples,
    TooManyUncertain,
    availability_between,
)
from federation.planning.routes import Hop
from tests.federation.graphs import by_counting, random_routes, ring_of, routes_with


def test_two_disjoint_paths_of_99_percent_give_9999() -> None:
    square = ring_of("a-b", "b-d", "a-c", "c-d", part=0.99**0.5)
    assert availability_between(square, "a", "d") == pytest.approx(0.9999, abs=1e-15)


def test_links_one_after_the_other_are_a_product() -> None:
    assert availability_between(ring_of("a>b", "b>c", part=0.9), "a", "c") == pytest.approx(0.81)


def test_a_site_between_counts_and_the_two_ends_do_not() -> None:
    chain = ring_of("a-b", "b-c", part=1.0, sites={"a": 0.5, "b": 0.9, "c": 0.5})
    assert availability_between(chain, "a", "c") == pytest.approx(0.9)


def test_a_link_is_of_no_use_the_wrong_way() -> None:
    assert availability_between(ring_of("a>b", "c>b"), "a", "c") == 0
    assert availability_between(ring_of("a>b"), "b", "a") == 0


def test_a_bridge_between_two_paths_is_used_either_way() -> None:
    # The Wheatstone bridge with all parts p: 2p^2 + 2p^3 - 5p^4 + 2p^5.
    bridge, p = ring_of("a-u", "a-v", "u-v", "u-d", "v-d", part=0.9), 0.9
    exact = 2 * p**2 + 2 * p**3 - 5 * p**4 + 2 * p**5
    assert availability_between(bridge, "a", "d") == pytest.approx(exact, abs=1e-14)


@pytest.mark.parametrize("seed", range(60))
def test_it_is_the_sum_over_all_states(seed: int) -> None:
    routes = random_routes(seed)
    counted = by_counting(routes, "a", "b")
    assert availability_between(routes, "a", "b") == pytest.approx(counted, abs=1e-12)


def test_twenty_links_are_worked_out_exactly_and_more_are_not() -> None:
    def complete(sites: int, *less: int) -> list[str]:
        lines = [f"s{a}-s{b}" for a, b in itertools.combinations(range(sites), 2)]
        return [one for n, one in enumerate(lines) if n not in less]

    assert len(complete(7, 20)) == MOST_UNCERTAIN
    part = availability_between(ring_of(*complete(7, 20), part=0.5), "s0", "s1")
    assert 0.9 < part < 1
    with pytest.raises(TooManyUncertain) as raised:
        availability_between(ring_of(*complete(7)), "s0", "s1")
    assert raised.value.links == 21


def test_however_many_links_a_tree_or_a_ring_has_they_reduce_to_nothing() -> None:
    ring = ring_of(*(f"s{n}-s{(n + 1) % 300}" for n in range(300)), part=0.999)
    way = 0.999**150
    exact = 1 - (1 - way) ** 2
    assert availability_between(ring, "s0", "s150") == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_samples_agree_with_what_is_exact_within_their_error(seed: int) -> None:
    routes = random_routes(seed, most_sites=6, most_hops=9)
    for site, found in Samples(routes).availability_from("a").items():
        exact = availability_between(routes, "a", site)
        assert abs(found.part - exact) <= 4 * found.standard_error


def test_the_same_seed_gives_the_same_samples() -> None:
    routes = ring_of("a-b", "b-c", "c-a", part=0.9)
    first = Samples(routes, samples=2000).availability_from("a")
    assert first == Samples(routes, samples=2000).availability_from("a")
    assert first != Samples(routes, samples=2000, seed=1).availability_from("a")


def test_what_never_failed_in_any_sample_still_has_an_error() -> None:
    found = Samples(ring_of("a-b", part=1 - 1e-9)).availability_from("a")["b"]
    assert found.part == 1
    assert found.standard_error > 0


def test_samples_heed_the_site_that_others_meet_at() -> None:
    hops = {("a", "b"): Hop(1.0, "host", "c"), ("a", "c"): Hop(1.0)}
    samples = Samples(routes_with(hops, {"c": 0.75}))
    from_a = samples.availability_from("a")
    assert from_a["b"].part == pytest.approx(0.75, abs=4 * from_a["b"].standard_error)
    assert from_a["c"].part == 1


def test_random_regular_graphs_of_twenty_lines_take_no_time() -> None:
    for seed in range(3):
        graph = nx.random_regular_graph(4, 10, seed=seed)
        routes = ring_of(*(f"s{a}-s{b}" for a, b in graph.edges), part=0.9)
        found = Samples(routes).availability_from("s0")["s9"]
        exact = availability_between(routes, "s0", "s9")
        assert abs(found.part - exact) <= 4 * found.standard_error
