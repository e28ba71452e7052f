"""Where a message waits: told from whose logs have its batch."""

from __future__ import annotations

import pytest

from federation.mesh import Mesh
from federation.mesh_file import parse_mesh
from spark_audit.compare.waiting import waits_for

CHAIN = """
mesh: m
outage_window: 1h
topology: custom
links: [{from: a, to: b, both: true}, {from: b, to: c, both: true}, {from: c, to: d, both: true}]
sites: {a: {}, b: {}, c: {}, d: {}}
exchanges: [{name: o}]
"""
RING = CHAIN.replace("custom", "ring\nboth: true").replace(CHAIN.splitlines()[4] + "\n", "")


def mesh_of(text: str) -> Mesh:
    found = parse_mesh(text.encode()).mesh
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("having", "where"),
    [
        ((), "link a-b"),
        (("a",), "link a-b"),
        (("a", "b"), "link b-c"),
        (("b", "c"), "link c-d"),
        (("a", "b", "c", "d"), "deliverer of d"),
    ],
)
def test_in_a_chain_it_waits_for_the_first_link_that_has_not_passed_it_on(
    having: tuple[str, ...], where: str
) -> None:
    assert waits_for(mesh_of(CHAIN), "o", "a", "d", having) == [where]


def test_in_a_ring_both_ways_are_told() -> None:
    assert waits_for(mesh_of(RING), "o", "a", "c", ("a",)) == ["link a-b", "link a-d"]
    assert waits_for(mesh_of(RING), "o", "a", "c", ("a", "b")) == ["link a-d", "link b-c"]
    assert waits_for(mesh_of(RING), "o", "a", "c", ("a", "b", "d")) == ["link b-c", "link d-c"]


def test_no_way_leads_across_a_site_that_may_not_hold_it() -> None:
    mesh = mesh_of(RING.replace("{name: o}", "{name: o, never_via: [b]}"))
    assert waits_for(mesh, "o", "a", "c", ("a",)) == ["link a-d"]


def test_in_a_complete_graph_only_the_origin_sends() -> None:
    mesh = mesh_of(RING.replace("ring\nboth: true", "complete"))
    assert waits_for(mesh, "o", "a", "c", ("a", "b", "d")) == ["link a-c"]


def test_a_mesh_without_a_way_is_said_to_have_none() -> None:
    one_way = mesh_of(
        CHAIN.replace("{from: c, to: d, both: true}", "{from: d, to: c}").replace(
            "{name: o}", "{name: o, to: [a, b, c]}"
        )
    )
    assert waits_for(one_way, "o", "a", "d", ("a", "b", "c")) == ["a way from a to d"]
