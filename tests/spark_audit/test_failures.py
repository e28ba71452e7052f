"""What Spark cannot do ends the command with what Spark said, and is no finding."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from isthmus.options import EXIT_USAGE
from spark_audit.generate.generator import generate_ledgers
from tests.spark_audit.conftest import DAY


@pytest.mark.spark
def test_a_ledger_on_a_file_system_that_spark_does_not_know(tmp_path: Path) -> None:
    generate_ledgers(tmp_path / "made", 2, 100, 1, DAY, [])
    command = [sys.executable, "-m", "isthmus", "audit", str(tmp_path / "made" / "mesh.yaml")]
    # In a process of its own: this one may have the Spark of other tests already.
    ended = subprocess.run(
        [*command, "--ledger", "nowhere://at/all", "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == EXIT_USAGE, ended.stdout + ended.stderr
    assert 'No FileSystem for scheme "nowhere"' in ended.stderr
    assert "Traceback" not in ended.stdout + ended.stderr


@pytest.mark.spark
def test_an_audit_runs_where_nobody_knows_the_name_of_the_machine(tmp_path: Path) -> None:
    generate_ledgers(tmp_path / "made", 2, 100, 1, DAY, [])
    apart = ["unshare", "--map-root-user", "--uts", "sh", "-c", 'hostname nowhere.invalid; "$@"']
    command = [sys.executable, "-m", "isthmus", "audit", str(tmp_path / "made" / "mesh.yaml")]
    where = ["--ledger", str(tmp_path / "made" / "ledger"), "--out", str(tmp_path / "out")]
    ended = subprocess.run(
        [*apart, "sh", *command, *where],
        env={name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "PROVEN" in ended.stdout, ended.stdout + ended.stderr
