"""The meshes that operators start from are all good, and are what their names say."""

from __future__ import annotations

from pathlib import Path

import pytest

from federation.mesh import ForwardingRule, Mesh
from federation.mesh_file import load_mesh, read_mesh
from federation.reachability import Reach

FOLDER = Path(__file__).parents[2] / "topology_configs"
FILES = sorted(path.name for path in FOLDER.iterdir())


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
