"""Completion in a shell, asked as bash asks for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from isthmus.cli import app

MESH = """\
mesh: m
topology: complete
exchanges: [{name: orders}]
sites: {paris: {}, lima: {}, lisbon: {}}
"""


def completed(*words: str) -> list[str]:
    """Return what bash is offered for the last of these words."""
    asked = {
        "_ISTHMUS_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("isthmus", *words)),
        "COMP_CWORD": str(len(words)),
    }
    done = CliRunner().invoke(app, [], prog_name="isthmus", env=asked)
    return done.output.split()


@pytest.fixture
def mesh(tmp_path: Path) -> str:
    file = tmp_path / "mesh.yaml"
    file.write_text(MESH)
    return str(file)


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("pause", "FILE", "--site", "li"), ["lima", "lisbon"]),
        (("pause", "FILE", "--site", ""), ["lima", "lisbon", "paris"]),
        (("apply", "FILE", "--site", "paris", "--site", "lis"), ["lisbon"]),
        (("resume", "FILE", "--link", "lima-"), ["lima-lisbon", "lima-paris"]),
        (("accept-gap", "FILE", "pa"), ["paris"]),
        (("relay", "FILE", "--site", "x"), []),
    ],
)
def test_names_come_from_the_mesh_file_on_the_line(
    mesh: str, words: tuple[str, ...], offered: list[str]
) -> None:
    assert completed(*(mesh if word == "FILE" else word for word in words)) == offered


@pytest.mark.parametrize("content", [None, "mesh: [", "mesh: m\n"])
def test_a_file_that_is_not_there_or_faulty_offers_nothing(
    tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "mesh.yaml"
    if content is not None:
        file.write_text(content)
    assert completed("pause", str(file), "--site", "") == []


def test_commands_are_offered() -> None:
    assert completed("stat") == ["status"]
