"""What Spark cannot do ends the command with what Spark said, and is no finding."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from isthmus.cli import app
from isthmus.options import EXIT_USAGE
from spark_audit.generate.generator import generate_ledgers
from tests.spark_audit.conftest import DAY


@pytest.mark.spark
def test_a_ledger_on_a_file_system_that_spark_does_not_know(tmp_path: Path) -> None:
    generate_ledgers(tmp_path / "made", 2, 100, 1, DAY, [])
    command = ["audit", str(tmp_path / "made" / "mesh.yaml"), "--ledger", "nowhere://at/all"]
    ended = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "out")])
    assert ended.exit_code == EXIT_USAGE, ended.output
    assert 'No FileSystem for scheme "nowhere"' in ended.stderr
    assert "Traceback" not in ended.output
