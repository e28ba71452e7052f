"""What `isthmus bench` answers where nothing is measured, and no broker is needed for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from isthmus.cli import app
from tests.federation.meshes import TRIANGLE


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "mesh.yaml"
    file.write_text(TRIANGLE)
    return file


def refusal_of(file: Path, *words: str) -> tuple[int, str]:
    result = CliRunner().invoke(
        app, ["bench", str(file), *words, "--state", str(file.parent / "state")]
    )
    assert not result.stdout
    return result.exit_code, result.stderr


def test_a_call_that_measures_nothing_is_wrong(file: Path) -> None:
    code, why = refusal_of(file, "--duration", "5")
    assert code == 2
    assert "--duration: `5` is no duration" in why


def test_sites_are_named_with_commas_or_one_by_one(file: Path) -> None:
    code, why = refusal_of(file, "--from", "paris, rome", "--from", "tokyo")
    assert code == 2
    assert "--from: there is no site 'rome'" in why


def test_brokers_that_nobody_has_started_are_not_measured(file: Path) -> None:
    code, why = refusal_of(file)
    assert code == 3
    assert "run `isthmus up` first" in why
