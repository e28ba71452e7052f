"""README and other pages: their mesh files, commands and targets can be used as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from federation.mesh_file import parse_mesh
from isthmus.cli import app

TOP = Path(__file__).parents[2]
README = (TOP / "README.md").read_text()
MESHES = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
PAGES = (
    TOP / "README.md",
    TOP / "CONTRIBUTING.md",
    *sorted((TOP / "docs").rglob("*.md")),
)
COMMAND = re.compile(r"^ *(?:\$ )?(?:\.venv/bin/)?isthmus ([a-z-]+)( [^#\n]*)?", re.MULTILINE)
COMMANDS = sorted({found for page in PAGES for found in COMMAND.findall(page.read_text())})


@pytest.mark.parametrize("text", MESHES)
def test_each_mesh_file_is_good(text: str) -> None:
    reading = parse_mesh(text.encode(), "README.md")
    assert reading.problems == ()


def test_there_are_mesh_files_and_commands_to_look_at() -> None:
    assert len(MESHES) >= 2
    assert len(COMMANDS) >= 7


@pytest.mark.parametrize(("name", "rest"), COMMANDS)
def test_each_command_is_one_and_has_the_options_shown(name: str, rest: str) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    command = group.commands[name]
    if isinstance(command, typer.core.TyperGroup):
        # `audit FILE` is short for `audit file FILE`.
        word = rest.split()[0]
        command = command.commands[word if word in command.commands else "file"]
    known = {option for parameter in command.params for option in parameter.opts}
    shown = {word.strip(",") for word in rest.split() if word.startswith("--")}
    assert shown <= known


def test_each_target_of_make_is_one() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (TOP / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^make ([a-z0-9-]+)", README, re.MULTILINE)) <= targets


@pytest.mark.parametrize("path", re.findall(r"\]\((?!http)([^)#]+)\)", README))
def test_each_file_that_it_leads_to_is_there(path: str) -> None:
    assert (TOP / path).exists()
