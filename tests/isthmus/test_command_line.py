"""A process that runs one command has the modules of that one, and behaves as with all."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from isthmus.cli import app
from isthmus.command_line import COMMANDS, command_line

RUN = """
import sys
from isthmus.command_line import main
sys.argv[1:] = {words}
try:
    main()
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""


def modules_after(*words: str) -> set[str]:
    """Return the modules of a process that has run `isthmus` with these words."""
    program = RUN.format(words=list(words))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_alone_is_the_one_among_all(name: str) -> None:
    alone = CliRunner().invoke(command_line([name]), [name, "--help"])
    among_all = CliRunner().invoke(app, [name, "--help"])
    assert alone.exit_code == 0
    assert alone.stdout == among_all.stdout


def test_all_commands_are_listed() -> None:
    said = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "120"}).stdout
    assert all(f" {name} " in said for name in COMMANDS)


def test_only_the_modules_of_the_command_are_loaded() -> None:
    loaded = modules_after("validate", "--help")
    assert "isthmus.commands.mesh_file" in loaded
    assert {name for name in loaded if name.startswith("isthmus.commands.")} == {
        "isthmus.commands.mesh_file"
    }
    assert not {"aiohttp", "relay.node.process"} & loaded
    assert "federation.mesh" not in modules_after("--version")
