"""The mesh as a graph, with branches folded."""

from __future__ import annotations

from isthmus.page.drawing import drawing, groups_of
from tests.federation.meshes import TRIANGLE, mesh_of


def hub_of(branches: int) -> str:
    sites = ", ".join(f"b{number:03}: {{}}" for number in range(branches))
    head = "mesh: acme\ntopology: {hub: middle}\nexchanges: [{name: orders}]\n"
    return f"{head}sites: {{middle: {{}}, {sites}}}\n"


def test_a_small_mesh_has_each_site_and_one_line_for_both_ways() -> None:
    found = drawing(mesh_of(TRIANGLE))
    assert [spot["sites"] for spot in found["spots"]] == [["paris"], ["tokyo"], ["sydney"]]
    assert len(found["lines"]) == 3
    assert sorted(found["lines"][0]["links"]) == ["paris-tokyo", "tokyo-paris"]
    assert len({(spot["x"], spot["y"]) for spot in found["spots"]}) == 3


def test_the_branches_of_a_large_mesh_share_a_spot_until_opened() -> None:
    mesh = mesh_of(hub_of(60))
    folded = drawing(mesh)
    (group,) = [spot for spot in folded["spots"] if spot["hub"]]
    assert (group["hub"], len(group["sites"]), len(folded["spots"])) == ("middle", 60, 2)
    assert len(folded["lines"][0]["links"]) == 120
    opened = drawing(mesh, ["middle", "a site that is gone"])
    assert len(opened["spots"]) == 61
    assert opened["opened"] == ["middle"]


def test_few_branches_are_not_folded() -> None:
    assert groups_of(mesh_of(hub_of(20))) == {}
