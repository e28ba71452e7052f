"""Metrics of an audit in a file for node exporter: content, refusals, and the whole command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from isthmus.cli import app
from spark_audit.report.textfile import (
    AUDIT_METRICS,
    TextfileUnusable,
    check_textfile,
    write_textfile,
)
from tests.spark_audit.report.test_html_report import DAY, report_of

ENDED_S = 1_800_000_000.5


def written(path: Path, **report: Any) -> dict[str, float]:
    """Values by name, those of the verdict by state."""
    write_textfile(path, report_of(**report), ENDED_S)
    found = {}
    for family in text_string_to_metric_families(path.read_text()):
        for sample in family.samples:
            assert sample.labels["mesh"] == "shop"
            found[sample.labels.get(sample.name, sample.name)] = sample.value
    return found


def test_the_file_has_verdict_findings_and_when_the_audit_and_its_period_ended(
    tmp_path: Path,
) -> None:
    path = tmp_path / "isthmus.prom"
    assert written(path, findings={"lost": 2, "altered": 1}) == {
        "proven": 0.0,
        "findings": 1.0,
        "not proven": 0.0,
        "isthmus_audit_findings": 3.0,
        "isthmus_audit_end_timestamp_seconds": ENDED_S,
        "isthmus_audit_period_end_timestamp_seconds": DAY.to_ms / 1000,
    }
    assert written(path)["proven"] == 1.0, "the next audit replaces the file"
    assert list(tmp_path.iterdir()) == [path], "and nothing is left beside"


def test_every_metric_of_the_audit_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "isthmus.prom"
    write_textfile(path, report_of(), ENDED_S)
    names = {family.name for family in text_string_to_metric_families(path.read_text())}
    assert names == {metric.name for metric in AUDIT_METRICS}


@pytest.mark.parametrize(
    ("name", "why"),
    [("isthmus.txt", "only files that end in .prom"), ("no/isthmus.prom", "is no folder: name")],
)
def test_a_path_that_node_exporter_would_not_read_is_refused_before_any_work(
    tmp_path: Path, name: str, why: str
) -> None:
    with pytest.raises(TextfileUnusable, match=why):
        check_textfile(tmp_path / name)
    mesh = tmp_path / "mesh.yaml"
    mesh.write_text("mesh: m\ntopology: complete\nexchanges: [{name: o}]\nsites: {a: {}, b: {}}\n")
    done = CliRunner().invoke(app, ["audit", str(mesh), "--textfile", str(tmp_path / name)])
    assert done.exit_code == 2
    assert "--textfile: " in done.output
    assert not (tmp_path / ".isthmus").exists()


@pytest.mark.spark
def test_the_command_leaves_the_verdict_of_its_report_in_the_file(tmp_path: Path) -> None:
    made, textfile = tmp_path / "made", tmp_path / "isthmus.prom"
    generated = CliRunner().invoke(
        app, ["audit", "generate", str(made), "--messages", "200", "--fault", "lost"]
    )
    assert generated.exit_code == 0
    command = [sys.executable, "-m", "isthmus", "audit", str(made / "mesh.yaml"), "--json"]
    command += ["--ledger", str(made / "sites"), "--out", str(tmp_path / "audit")]
    # In a process of its own: this one may have the Spark of other tests already.
    done = subprocess.run(
        [*command, "--date", "2026-03-01", "--textfile", str(textfile)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    report = json.loads((tmp_path / "audit" / "report.json").read_text())
    samples = {
        sample.labels.get(sample.name, sample.name): sample.value
        for family in text_string_to_metric_families(textfile.read_text())
        for sample in family.samples
    }
    assert samples["findings"] == 1.0
    assert samples["isthmus_audit_findings"] == sum(report["findings"].values()) > 0
