"""What a changed file means for one site's node."""

from __future__ import annotations

from federation.mesh import Mesh
from federation.mesh_file import parse_mesh
from relay.node.mesh_change import why_over, why_refused

FILE = "mesh: m\ntopology: complete\nexchanges: [{name: orders}]\nsites: {a: {}, b: {}, c: {}}\n"


def mesh(text: str = FILE) -> Mesh:
    found = parse_mesh(text.encode()).mesh
    assert found is not None
    return found


def test_another_name_of_the_mesh_is_refused_though_the_site_is_not_in_it() -> None:
    other = mesh(FILE.replace("mesh: m", "mesh: n").replace("a: {}", "d: {}"))
    assert "cannot change its name" in why_refused(mesh(), other, "a")


def test_another_cluster_id_is_refused_by_the_site_itself_only() -> None:
    other = mesh(FILE.replace("a: {}", "a: {cluster_id: aa}"))
    assert "'aa'" in why_refused(mesh(), other, "a")
    assert not why_refused(mesh(), other, "b")


def test_a_site_that_is_gone_ends_and_says_whether_it_was_drained() -> None:
    smaller = mesh(
        FILE.replace("c: {}", "").replace("complete", "custom")
        + "links: [{from: a, to: b, both: true}]\n"
    )
    assert not why_refused(mesh(), smaller, "c")
    assert "not drained" in why_over(smaller, "c", is_drained=False)
    assert "it was drained" in why_over(smaller, "c", is_drained=True)
    assert not why_over(smaller, "a", is_drained=False)
