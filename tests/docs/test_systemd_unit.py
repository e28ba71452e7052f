"""The units for systemd call the command as it is, and give nodes no more than they need."""

from __future__ import annotations

import configparser
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import typer

from isthmus.cli import app
from isthmus.options import EXIT_STOPPED, EXIT_USAGE

UNITS = Path(__file__).parents[2] / "examples" / "systemd"
UNIT = UNITS / "isthmus@.service"
MOST_EXPOSED = 3.0


def service() -> configparser.SectionProxy:
    unit = configparser.ConfigParser(interpolation=None, delimiters=("=",), strict=False)
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


@pytest.mark.parametrize("unit", ["isthmus@.service", "isthmus-audit.service"])
def test_the_units_are_little_exposed_by_systemds_own_judgement(unit: str) -> None:
    words = ["systemd-analyze", "security", "--offline=yes", str(UNITS / unit)]
    judged = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    (exposure,) = re.findall(r"Overall exposure level for \S+ ([\d.]+)", judged)
    assert float(exposure) < MOST_EXPOSED


@pytest.mark.parametrize("unit", ["isthmus@.service", "isthmus-audit.service"])
def test_the_units_leave_what_nodes_read_of_the_machine(unit: str) -> None:
    settings = (UNITS / unit).read_text()
    assert "ProcSubset" not in settings, "a node reads /proc/sys and /proc/locks"
    assert "@resources" not in settings, "the ledger's process lowers its own priority"
