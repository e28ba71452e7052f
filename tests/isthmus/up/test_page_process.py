"""The page as a child of `isthmus up`."""

from __future__ import annotations

from pathlib import Path

from isthmus.up.mesh_children import MeshChildren
from tests.federation.meshes import mesh_of
from tests.isthmus.up.test_resting import MESH


def test_the_page_is_a_child_only_where_it_is_wanted(tmp_path: Path) -> None:
    def kinds(*, has_page: bool) -> list[str]:
        children = MeshChildren(tmp_path / "m.yaml", tmp_path / "state", None, has_page=has_page)
        return [plan.child.kind for plan in children.plans(mesh_of(MESH))]

    assert kinds(has_page=True) == ["node", "node", "page"]
    assert kinds(has_page=False) == ["node", "node"]


def test_the_page_stays_the_same_child_when_the_file_changes(tmp_path: Path) -> None:
    children = MeshChildren(tmp_path / "m.yaml", tmp_path / "state", None, has_page=True)
    before = children.plans(mesh_of(MESH))[-1].child
    assert children.plans(mesh_of(MESH))[-1].child is before
