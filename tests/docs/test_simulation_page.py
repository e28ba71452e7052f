"""docs/simulation.md: what it shows of an outage is what the command says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from isthmus.cli import app

PAGE = (Path(__file__).parents[2] / "docs/simulation.md").read_text()


def test_the_outage_on_the_page_is_told_in_just_these_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = re.search(r"```yaml\n(.*?)```\n\n```\n\$ isthmus (.*?)\n(.*?)\n```", PAGE, re.DOTALL)
    assert found is not None
    (tmp_path / "mesh.yaml").write_text(found[1])
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, shlex.split(found[2]))
    assert result.exit_code == 1
    said = [line.rstrip() for line in result.stdout.rstrip().splitlines()]
    assert said == found[3].splitlines()
