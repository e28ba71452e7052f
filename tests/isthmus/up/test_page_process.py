"""The page as a child of `isthmus up`."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from isthmus.cli import app
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


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mesh.yaml").write_text(MESH)
    for listen in ("8642", "127.0.0.1:", "127.0.0.1:99999", ":1"):
        words = ["page", str(tmp_path / "mesh.yaml"), "--listen", listen]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 2
        assert "say HOST:PORT" in result.output
