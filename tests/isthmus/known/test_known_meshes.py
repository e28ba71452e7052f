"""Which mesh commands go by while the file is wrong."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from federation.brokers.applied import write_applied_mesh
from federation.mesh import Mesh
from federation.mesh_file import load_mesh
from isthmus.cli import app
from isthmus.known.address_book import address_book
from isthmus.known.known_meshes import KnownMeshes
from relay.ledger.revisions import KeptRevisions
from relay.operator.holds import Holds, read_holds

FILE = """\
mesh: acme
topology: complete
exchanges: [{name: orders}]
sites: {paris: {}, tokyo: {}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "mesh.yaml"
    file.write_text(FILE)
    return file


def ran(file: Path, site: str, mesh: Mesh, at_s: int) -> None:
    folder = file.parent / "state" / "sites" / site / "ledger" / "revisions"
    KeptRevisions(folder).keep(mesh, at_s * 1000)
    os.utime(folder / f"{mesh.revision}.json", (at_s, at_s))


def run(file: Path, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--state", str(file.parent / "state")])


def test_the_latest_of_what_was_applied_and_what_ran_is_known(file: Path) -> None:
    state = file.parent / "state"
    assert KnownMeshes(state).latest() is None
    first = load_mesh(file)
    second, third = replace(first, revision="2" * 12), replace(first, revision="3" * 12)
    write_applied_mesh(state, third)
    os.utime(state / "applied" / f"acme.revision.{third.revision}.json", (30, 30))
    ran(file, "paris", first, 10)
    ran(file, "paris", second, 20)
    ran(file, "tokyo", first, 15)
    known = KnownMeshes(state)
    assert known.latest() == third
    assert known.ran_last("paris") == second
    assert known.ran_last("tokyo") == first
    assert known.ran_last("lima") is None
    ran(file, "tokyo", second, 40)
    assert KnownMeshes(state).latest() == second


def test_exchanges_that_any_revision_delivered_to_are_known(file: Path) -> None:
    state, first = file.parent / "state", load_mesh(file)
    file.write_text(FILE.replace("{name: orders}", "{name: prices, mode: split, to: [tokyo]}"))
    second = load_mesh(file)
    for site in ("paris", "tokyo"):
        ran(file, site, first, 10)
        ran(file, site, second, 20)
    known = KnownMeshes(state)
    assert known.delivered_at("paris") == {"orders"}
    assert known.delivered_at("tokyo") == {"orders", "prices.in"}
    assert known.delivered_at("lima") == set()
    assert address_book(second, state).formerly_delivered("paris") == {"orders"}


def test_an_unreadable_revision_leaves_the_one_before(file: Path) -> None:
    state = file.parent / "state"
    first = load_mesh(file)
    ran(file, "paris", first, 10)
    ran(file, "paris", replace(first, revision="2" * 12), 20)
    folder = state / "sites" / "paris" / "ledger" / "revisions"
    for text in ("{", "[]", "{}", '{"taken_up_ms": 1, "mesh": 3}'):
        (folder / f"{'2' * 12}.json").write_text(text)
        assert KnownMeshes(state).latest() == first


@pytest.mark.parametrize("gone", [False, True], ids=["wrong", "gone"])
def test_while_the_file_is_wrong_commands_go_by_the_last_mesh(file: Path, gone: bool) -> None:
    ran(file, "paris", load_mesh(file), 10)
    if gone:
        file.unlink()
    else:
        file.write_text(FILE + "sitse: {}\n")
    status = run(file, "status", str(file))
    assert status.exit_code == 1
    assert "paris" in status.stdout
    assert "mesh.yaml:1:1: cannot be read" in status.stderr or "mesh.yaml:5:1: " in status.stderr
    assert "this goes by revision" in status.stderr
    paused = run(file, "pause", str(file), "--site", "paris")
    assert paused.exit_code == 0, paused.output
    assert read_holds(file.parent / "state" / "sites" / "paris") == Holds(paused=True)
    letters = run(file, "dead-letters", "list", str(file), "--site", "paris")
    assert "its node does not answer" in letters.stderr
    # Whoever makes something of the file does not.
    assert run(file, "apply", str(file)).exit_code == 2


def test_where_nothing_is_known_a_wrong_file_ends_the_command(file: Path) -> None:
    file.write_text(FILE + "sitse: {}\n")
    for command in (["status"], ["doctor"], ["pause", "--site", "paris"]):
        result = run(file, command[0], str(file), *command[1:])
        assert result.exit_code == 2
        assert "mesh.yaml:5:1: " in result.stderr


TLS = """\
mesh: acme
topology: complete
exchanges: [{name: orders, keys: ["a.#", "order.**"]}]
sites:
  paris: {broker: "amqps://u@p", password: "env:P", tls: {ca: paris.pem}}
  tokyo: {broker: "amqps://u@t", password: "env:T", tls: {ca: tokyo.pem}}
"""


def test_files_that_others_need_are_only_missed_by_commands_about_others(file: Path) -> None:
    file.write_text(TLS)
    for words, missed in (
        (["validate", str(file)], ["paris.pem", "tokyo.pem"]),
        (["uri", str(file), "paris"], ["paris.pem"]),
        (["status", str(file)], []),
        (["apply", str(file), "--site", "tokyo"], ["tokyo.pem"]),
    ):
        result = CliRunner().invoke(app, words)
        said = [name for name in ("paris.pem", "tokyo.pem") if f"{name} here" in result.stderr]
        assert said == missed, words
        # What is said of the file as a whole is said by all.
        assert "is taken as it stands" in result.stderr
