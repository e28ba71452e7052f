"""Slots of a site: which one an exchange is in, and the strands between two sites."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federation.mesh import Mesh
from federation.mesh_file import parse_mesh
from federation.mesh_json import mesh_as_json, mesh_from_json
from federation.names import Names
from federation.slots import ONE_SLOT, SlotMap, slot_pairs

FILE = """
mesh: acme
topology: complete
exchanges: [{name: orders}, {name: prices}]
sites:
  paris: {slots: 4, place: {orders: 3}}
  tokyo: {slots: 2}
  lima: {}
"""


def read(text: str = FILE) -> Mesh:
    mesh = parse_mesh(text.encode()).mesh
    assert mesh is not None
    return mesh


def mistakes(text: str) -> list[str]:
    return [str(problem) for problem in parse_mesh(text.encode()).problems]


def test_the_slot_of_an_exchange_never_changes_by_itself() -> None:
    # These numbers are in running sites: another hash would tear their flows apart.
    slots = SlotMap(8)
    assert [slots.of(name) for name in ("orders", "prices", "news", "")] == FIXED
    assert SlotMap(8, {"orders": 7}).of("orders") == 7
    assert ONE_SLOT.of("orders") == 0


FIXED = [5, 2, 1, 4]


@pytest.mark.parametrize(("one", "other"), [(1, 8), (8, 8), (4, 8), (3, 2), (3, 8)])
def test_each_exchange_has_a_strand_at_both_ends(one: int, other: int) -> None:
    sender, receiver = SlotMap(one, {"placed": one - 1}), SlotMap(other)
    pairs = {(pair.sender, pair.receiver) for pair in slot_pairs(sender, receiver)}
    names = ["placed", *(f"exchange {number}" for number in range(2000))]
    assert {(sender.of(name), receiver.of(name)) for name in names} <= pairs


def test_slots_that_are_multiples_of_each_other_need_no_more_strands_than_the_larger() -> None:
    assert len(slot_pairs(SlotMap(4), SlotMap(8))) == 8
    assert len(slot_pairs(SlotMap(1), SlotMap(8))) == 8
    assert slot_pairs(ONE_SLOT, ONE_SLOT) == ()


def test_ends_with_different_slots_have_other_names_for_every_strand() -> None:
    mesh = read()
    (link,) = (link for link in mesh.links if (link.sender, link.receiver) == ("paris", "tokyo"))
    paris = mesh.sites["paris"]
    placed = replace(paris, slots=SlotMap(4, {"orders": 2}))
    other = replace(mesh, sites={**mesh.sites, "paris": placed})
    names = Names(mesh.name)
    here = {names.link_data(one) for one in mesh.strands(link)}
    assert not here & {names.link_data(one) for one in other.strands(link)}
    assert names.link_data(link) not in here


def test_sites_of_one_slot_have_the_names_that_they_had() -> None:
    mesh = read(FILE.replace("slots: 4, place: {orders: 3}", "").replace("slots: 2", ""))
    assert all(mesh.strands(link) == (link,) for link in mesh.links)
    assert Names("acme", 0) == Names("acme")
    assert Names("acme", 2).log == "isthmus.acme.log.s2"


def test_lanes_and_slots_together_make_strands_of_different_names() -> None:
    mesh = read(FILE.replace("topology:", "lanes: [urgent, normal]\ntopology:"))
    (link,) = (link for link in mesh.links if (link.sender, link.receiver) == ("paris", "tokyo"))
    strands = mesh.strands(link)
    assert len({one.name for one in strands}) == len(strands) == 2 * 4
    assert {one.slot_at("paris") for one in strands} == {0, 1, 2, 3}
    assert {one.slot_at("tokyo") for one in strands} == {0, 1}


def test_slots_are_part_of_the_revision_and_survive_json() -> None:
    mesh = read()
    assert mesh_from_json(mesh_as_json(mesh)) == mesh
    assert read(FILE.replace("slots: 2", "slots: 1")).revision != mesh.revision
    assert read(FILE.replace("{slots: 2}", "{}")).revision == (
        read(FILE.replace("slots: 2", "slots: 1")).revision
    )


@pytest.mark.parametrize(
    ("written", "instead", "mistake"),
    [
        ("slots: 2", "slots: 0", "must be at least 1"),
        ("slots: 2", "slots: 65", "must be at most 64"),
        ("orders: 3", "orders: 4", "there is no slot 4 at `paris`, whose `slots` is 4"),
        ("orders: 3", "oders: 3", "there is no exchange `oders`"),
    ],
)
def test_a_mistake_has_its_reason(written: str, instead: str, mistake: str) -> None:
    found = mistakes(FILE.replace(written, instead))
    assert len(found) == 1
    assert mistake in found[0]
