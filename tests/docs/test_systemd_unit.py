"""The unit for systemd calls the command as it is."""

from __future__ import annotations

import configparser
import shlex
from pathlib import Path

import typer

from isthmus.cli import app
from isthmus.options import EXIT_STOPPED, EXIT_USAGE

UNIT = Path(__file__).parents[2] / "examples" / "systemd" / "isthmus@.service"


def service() -> configparser.SectionProxy:
    unit = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT)
    return unit["Service"]


def test_its_command_is_one_with_the_options_that_it_uses() -> None:
    program, name, file, *words = shlex.split(service()["ExecStart"])
    assert (Path(program).name, Path(file).suffix) == ("isthmus", ".yaml")
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    known = {option for parameter in group.commands[name].params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_what_no_restart_mends_is_not_restarted() -> None:
    assert service()["RestartPreventExitStatus"].split() == [str(EXIT_USAGE), str(EXIT_STOPPED)]
    assert service()["Type"] == "notify"
