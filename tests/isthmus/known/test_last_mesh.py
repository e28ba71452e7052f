"""What a node begins with while its mesh file is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from federation.mesh import Mesh
from federation.mesh_file import load_mesh
from isthmus.known.known_meshes import mesh_or_last
from relay.ledger.revisions import KeptRevisions

FILE = """\
mesh: m
topology: complete
exchanges: [{name: orders}]
sites: {a: {}, b: {broker: "amqp://u@h/v", password: "env:SECRET"}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "mesh.yaml").write_text(FILE)
    return tmp_path / "mesh.yaml"


def ran(file: Path, site: str, mesh: Mesh, now_ms: int = 1) -> Path:
    """The folder of a site whose node ran that mesh."""
    folder = file.parent / "sites" / site
    KeptRevisions(folder / "ledger" / "revisions").keep(mesh, now_ms)
    return folder


def test_a_good_file_is_what_it_says(file: Path) -> None:
    mesh = load_mesh(file)
    folder = ran(file, "a", mesh)
    file.write_text(FILE.replace("orders", "stock"))
    assert mesh_or_last(file, ["a"], [folder]) == load_mesh(file) != mesh


def test_while_it_is_wrong_the_last_one_that_ran_goes_on(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran(file, "a", load_mesh(file), 1)
    file.write_text(FILE.replace("orders", "stock"))
    last = load_mesh(file)
    folder = ran(file, "a", last, 2)
    file.write_text(FILE + "sitse: {}\n")
    assert mesh_or_last(file, ["a"], [folder]) == last
    said = capsys.readouterr().err
    assert "mesh.yaml:5:1: " in said
    assert f"going on with revision {last.revision}" in said


def test_a_node_that_never_ran_or_whose_password_was_in_the_file_does_not_begin(
    file: Path,
) -> None:
    mesh = load_mesh(file)
    folder = ran(file, "a", mesh)
    file.write_text(FILE.replace("env:SECRET", "in clear"))
    clear = ran(file, "b", load_mesh(file))
    file.unlink()
    for sites, folders in (
        (["b"], [file.parent / "sites" / "never"]),
        (["b"], [clear]),
        (["a", "b"], [folder, clear]),
        (["c"], [folder]),
    ):
        with pytest.raises(typer.Exit) as raised:
            mesh_or_last(file, sites, folders)
        assert raised.value.exit_code == 2


def test_a_login_by_certificate_lacks_no_password(file: Path) -> None:
    broker = '"amqps://u@h/v", auth: external, tls: {certificate: c.pem, key: k.pem}'
    file.write_text(FILE.replace('"amqp://u@h/v", password: "env:SECRET"', broker))
    mesh = load_mesh(file)
    folder = ran(file, "b", mesh)
    file.write_text("")
    assert mesh_or_last(file, ["b"], [folder]) == mesh
