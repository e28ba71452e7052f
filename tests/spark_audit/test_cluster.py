"""The audit runs unchanged on a real Spark cluster, by spark-submit too, and outlives a worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_audit.generate.generator import generate_ledgers
from spark_audit.level import Level
from tests.spark_audit.conftest import DAY, AuditOf
from tests.spark_audit.standalone_cluster import HOME, StandaloneCluster
from tests.waiting import until_met

pytestmark = [pytest.mark.spark, pytest.mark.long]  # two minutes each, and the job is the same

TOP = Path(__file__).parents[2]
PATIENCE_S = 600
KINDS = ["lost", "leaked-across-batches", "forged", "parts", "looped"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandaloneCluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with StandaloneCluster(folder) as running:
        yield running


@pytest.fixture
def made(tmp_path: Path) -> Path:
    folder = tmp_path / "made"
    # Many small files: so many tasks that both workers get some of each stage.
    generate_ledgers(folder, 3, 6_000, 11, DAY, KINDS, at_rows=256)
    return folder


def environment(tmp_path: Path) -> dict[str, str]:
    """Spark's own defaults for a machine as small as this one."""
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "spark-defaults.conf").write_text(
        "spark.executor.memory 512m\nspark.ui.enabled false\n"
    )
    return {**os.environ, "SPARK_CONF_DIR": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"}


def comparable(report: dict[str, Any]) -> dict[str, Any]:
    return {key: report[key] for key in ("verdict", "totals", "pairs", "findings", "shown")}


def test_the_command_on_a_cluster_says_what_it_says_here(
    tmp_path: Path, cluster: StandaloneCluster, made: Path, audit_of: AuditOf
) -> None:
    out = tmp_path / "out"
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "isthmus", "audit", made / "mesh.yaml"),
            *("--ledger", made / "sites", "--date", "2026-03-01", "--out", out),
            *("--master", cluster.master, "--json"),
        ],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert ended.returncode == 1, ended.stderr
    assert ended.stderr == ""
    assert comparable(json.loads(ended.stdout)) == comparable(audit_of(made).as_json())
    assert not (out / "work").exists()
    assert cluster.state()["completedapps"], "the cluster has not seen it"


def test_plain_spark_submit_says_the_same(
    tmp_path: Path, cluster: StandaloneCluster, made: Path, audit_of: AuditOf
) -> None:
    ended = subprocess.run(
        [
            *(HOME / "bin/spark-submit", "--master", cluster.master),
            *(TOP / "isthmus/spark_submit.py", made / "mesh.yaml", "--level", "fingerprint"),
            *("--ledger", made / "sites", "--date", "2026-03-01", "--out", tmp_path / "out"),
            "--json",
        ],
        env={**environment(tmp_path), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert ended.returncode == 1, ended.stderr
    assert comparable(json.loads(ended.stdout)) == comparable(
        audit_of(made, level=Level.FINGERPRINT).as_json()
    )
    assert cluster.state()["completedapps"], "the cluster has not seen it"


@pytest.mark.parametrize("level", Level)
def test_a_worker_that_dies_in_the_middle_changes_nothing(
    tmp_path: Path, cluster: StandaloneCluster, made: Path, audit_of: AuditOf, level: Level
) -> None:
    work = tmp_path / "work"
    driver = subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.spark_audit.cluster_job"),
            *(cluster.master, made, level.value, work.as_uri()),
        ],
        env=environment(tmp_path),
        cwd=TOP,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert driver.stdout is not None
        steps = []
        for line in driver.stdout:
            steps.append(line.strip())
            if steps[-1] == "comparing batches":
                until_met(
                    lambda: cluster.executors_of("worker0"),
                    "work for the first worker",
                    60,
                    every_s=0.1,
                )
                cluster.kill("worker0")
        assert driver.wait(PATIENCE_S) == 0
    finally:
        driver.kill()
        driver.wait()
    assert comparable(json.loads(steps[-1])) == comparable(audit_of(made, level=level).as_json())
    assert not work.exists()
