"""Lanes, and the numbers and strands that follow from them."""

from __future__ import annotations

from federation.lanes import lane_number, lane_word, weights_of
from federation.mesh import Link
from federation.names import Names
from tests.federation.meshes import TRIANGLE, mesh_of

WITH_LANES = "lanes: [urgent, normal, bulk]\nmax_rate: 20Mbit/s\n" + TRIANGLE


def test_a_lane_has_the_same_number_whatever_other_lanes_a_mesh_has() -> None:
    assert [lane_number(name) for name in ("normal", "urgent", "bulk")] == [0, 1, 2]
    drawn = {lane_number(f"lane{n}") for n in range(2000)}
    assert min(drawn) == 3
    assert max(drawn) == 202
    # What stands in logs is of this number for good.
    assert lane_number("express") == 51


def test_lanes_that_are_only_named_weigh_four_times_as_much_as_the_next() -> None:
    assert weights_of(["urgent", "normal", "bulk"]) == {"urgent": 16, "normal": 4, "bulk": 1}


def test_a_lane_is_told_by_its_name_where_it_is_known() -> None:
    mesh = mesh_of("lanes: [express, normal]\nmax_rate: 1MB/s\n" + TRIANGLE)
    assert lane_word(51, mesh.lanes) == "express"
    assert lane_word(51) == "number 51"
    assert lane_word(2) == "bulk"


def test_a_link_of_a_mesh_without_lanes_is_one_strand_and_named_as_ever() -> None:
    mesh = mesh_of(TRIANGLE)
    for link in mesh.links:
        assert mesh.strands(link) == (link,)


def test_a_mesh_that_gets_lanes_keeps_its_links_as_they_are_and_gets_strands_beside_them() -> None:
    before, after = mesh_of(TRIANGLE), mesh_of(WITH_LANES)
    names = Names("acme")
    for former, link in zip(before.links, after.links, strict=True):
        urgent, normal, bulk = after.strands(link)
        assert normal == link
        assert (former.name, names.link_data(former)) == (link.name, names.link_data(link))
        assert urgent.name == f"{link.name}.urgent"
        assert {urgent.line_name, bulk.line_name} == {link.name}


def test_no_name_of_a_strand_is_another_strands_or_links() -> None:
    names = Names("acme")
    links = [
        Link(a, b, b, lane=lane)
        for a in ("a", "a-b", "b")
        for b in ("a", "a-b", "b")
        for lane in ("", "a", "b", "urgent")
    ]
    made = [
        name(link)
        for link in links
        for name in (names.link_data, names.link_acks, names.receiver_queue, names.sender_queue)
    ]
    assert len(set(made)) == len(made)
    for link in links:
        for site in ("a", "a-b", "b"):
            prefix = names.link_queue_prefix(site)
            assert names.receiver_queue(link).startswith(prefix) == (link.receiver == site)
            assert names.sender_queue(link).startswith(prefix) == (link.sender == site)
