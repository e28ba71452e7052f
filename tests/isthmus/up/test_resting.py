"""Nodes of one site that rest beside a supervised mesh."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from isthmus.cli import app
from isthmus.up.mesh_children import MeshChildren
from isthmus.up.resting import rest, rests, rouse
from tests.federation.meshes import mesh_of

MESH = """\
mesh: acme
topology: complete
exchanges: [{name: orders}]
sites:
  paris: {broker: "amqp://u@127.0.0.1:1/v", password: "env:P"}
  tokyo: {broker: "amqp://u@127.0.0.1:2/v", password: "env:P"}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "mesh.yaml"
    file.write_text(MESH)
    return file


def test_no_node_of_a_site_that_rests_is_planned(tmp_path: Path, file: Path) -> None:
    state, mesh = tmp_path / "state", mesh_of(MESH)

    def planned() -> list[str]:
        return [plan.child.name for plan in MeshChildren(file, state, None).plans(mesh)]

    assert planned() == ["paris", "tokyo"]
    rest(state, "tokyo")
    assert rests(state, "tokyo")
    assert planned() == ["paris"]
    rouse(state, mesh.sites)
    assert not rests(state, "tokyo")
    assert planned() == ["paris", "tokyo"]


def test_nodes_that_up_does_not_run_are_not_ended(tmp_path: Path, file: Path) -> None:
    state = tmp_path / "state"
    result = CliRunner().invoke(app, ["down", str(file), "--site", "tokyo", "--state", str(state)])
    assert result.exit_code == 1
    assert "end the nodes where they run" in result.stderr
    assert not rests(state, "tokyo")


def test_an_unknown_site_is_refused(tmp_path: Path, file: Path) -> None:
    result = CliRunner().invoke(app, ["down", str(file), "--site", "lima", "--state", "state"])
    assert result.exit_code == 2
    assert "lima" in result.stderr
