"""How often a batch crosses links as a mesh grows."""

from __future__ import annotations

import pytest

from benchmarks.growth import grow

SITES = 7


@pytest.mark.parametrize("topology", ["tree", "hub", "line", "one-way-ring"])
def test_where_there_is_one_way_each_batch_goes_over_as_many_links_as_there_are_others(
    topology: str,
) -> None:
    grown = grow(topology, SITES, messages=3)
    assert grown.batches > SITES
    assert grown.sent == grown.batches * (SITES - 1)


@pytest.mark.parametrize(
    ("topology", "sites"), [("ring", SITES), ("complete", 5), ("random", SITES)]
)
def test_elsewhere_it_goes_over_each_link_at_most_once(topology: str, sites: int) -> None:
    grown = grow(topology, sites, messages=3)
    assert grown.batches * (sites - 1) <= grown.sent <= grown.batches * grown.links
