"""The meshes that operators start from are all good, and are what their names say."""

from __future__ import annotations

from pathlib import Path

import pytest

from federation.mesh import ForwardingRule, Mesh
from federation.mesh_file import load_mesh, read_mesh
from federation.reachability import Reach

FOLDER = Path(__file__).parents[2] / "topology_configs"
FILES = sorted(path.name for path in FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("name", FILES)
def test_it_loads_without_a_warning_and_says_what_it_is_for(name: str) -> None:
    reading = read_mesh(FOLDER / name)
    assert reading.problems == ()
    assert reading.mesh is not None
    assert (FOLDER / name).read_text().startswith("# ")


@pytest.mark.parametrize("name", FILES)
def test_every_site_can_be_reached_from_every_other(name: str) -> None:
    mesh = load_mesh(FOLDER / name)
    pairs = [(link.sender, link.receiver) for link in mesh.links]
    assert list(Reach(pairs, mesh.rule).missing(mesh.sites, mesh.sites)) == []


@pytest.mark.parametrize(
    ("name", "sites", "links", "rule"),
    [
        ("ring.yaml", 3, 3, ForwardingRule.RING),
        ("ring-both-ways.yaml", 4, 8, ForwardingRule.RING),
        ("complete.yaml", 4, 12, ForwardingRule.COMPLETE),
        ("tree.yaml", 7, 12, ForwardingRule.RING),
        ("five-meshed.yaml", 5, 20, ForwardingRule.RING),
        ("hub-500-branches.yaml", 501, 1000, ForwardingRule.RING),
        ("two-regions.yaml", 10, 36, ForwardingRule.RING),
        ("several-nodes.yaml", 2, 2, ForwardingRule.COMPLETE),
        ("multicast.yaml", 4, 10, ForwardingRule.RING),
    ],
)
def test_it_has_the_shape_that_its_name_says(
    name: str, sites: int, links: int, rule: ForwardingRule
) -> None:
    mesh: Mesh = load_mesh(FOLDER / name)
    assert (len(mesh.sites), len(mesh.links), mesh.rule) == (sites, links, rule)


def test_in_the_tree_only_the_branches_dial_the_links_of_branches() -> None:
    mesh = load_mesh(FOLDER / "tree.yaml")
    branches = {"oslo", "turku", "rome", "bari"}
    assert branches.isdisjoint(link.meeting for link in mesh.links)


def test_every_folder_entry_is_a_mesh_or_belongs_to_one() -> None:
    others = {path.name for path in FOLDER.iterdir()} - set(FILES)
    assert others == {"hub-500-branches.csv", "mesh.schema.json", "site-list.schema.json"}


def test_five_hundred_branches_take_forty_lines_and_want_only_what_is_theirs() -> None:
    assert len((FOLDER / "hub-500-branches.yaml").read_text().splitlines()) <= 40
    mesh = load_mesh(FOLDER / "hub-500-branches.yaml")
    assert {link.meeting for link in mesh.links} == {"head"}
    shop = mesh.sites["turku-01"]
    assert shop.wants == {"store": ("store.turku-01.#",)}
    assert shop.tags == ("shops", "south")
    assert shop.broker is not None
    assert shop.broker.amqp == "amqps://relay@rabbit.turku-01.shops.example:5671/acme"
    assert shop.broker.password == f"file:{FOLDER / 'secrets' / 'turku-01'}"
    assert len(mesh.exchanges["prices"].destinations or ()) == 500


def test_in_two_regions_any_one_hub_may_fail() -> None:
    mesh = load_mesh(FOLDER / "two-regions.yaml")
    hubs = {name for name, site in mesh.sites.items() if "hubs" in site.tags}
    assert len(hubs) == 4
    assert {link.meeting for link in mesh.links} == hubs
    for lost in hubs:
        left = set(mesh.sites) - {lost}
        pairs = [(one.sender, one.receiver) for one in mesh.links if lost not in one.name]
        assert list(Reach(pairs, mesh.rule).missing(left, left)) == []
