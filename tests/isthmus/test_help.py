"""What a newcomer asks a command for first."""

from __future__ import annotations

from importlib import metadata

import pytest
from typer.testing import CliRunner

from isthmus.cli import app


@pytest.mark.parametrize("words", [[], ["status"], ["dead-letters"], ["quarantine", "list"]])
def test_help_is_given_for_either_word(words: list[str]) -> None:
    for option in ("--help", "-h"):
        result = CliRunner().invoke(app, [*words, option])
        assert result.exit_code == 0
        assert "Usage: " in result.stdout


@pytest.mark.parametrize("name", ["dead-letters", "quarantine"])
def test_the_help_of_what_was_put_aside_has_examples(name: str) -> None:
    said = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "120"}).stdout
    for words in ("list mesh.yaml", "show mesh.yaml", "retry mesh.yaml", "export mesh.yaml"):
        assert f"isthmus {name} {words}" in said


def test_the_version_is_printed() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout == f"isthmus {metadata.version('isthmus')}\n"
