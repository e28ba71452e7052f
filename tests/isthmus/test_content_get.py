"""`isthmus content get`: what it refuses before it asks anybody."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from isthmus.cli import app
from tests.federation.mesh_file.test_mesh_file_clusters import mesh_with

CLUSTER = "cluster: {zookeeper: zk1:2181, cassandra: {hosts: c1:9042}}"


@pytest.mark.parametrize(
    ("keys", "content_id", "said"),
    [
        ("", "ab" * 32, "paris has no `cluster:`"),
        (CLUSTER, "ab" * 31, "is no content ID: write the 64 digits"),
        (CLUSTER, "body", "is no content ID: write the 64 digits"),
    ],
)
def test_what_cannot_be_fetched_is_refused_with_a_remedy(
    tmp_path: Path, keys: str, content_id: str, said: str
) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text(mesh_with(keys))
    words = ["content", "get", str(file), content_id, "--site", "paris", "--state", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert said in result.stderr
