"""Which sites are asked for what another one lacks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from federation.mesh import Mesh
from federation.mesh_file import load_mesh
from isthmus.lost_messages import Lost
from isthmus.repair import Sources
from relay.batches.batch import BatchName

FILE = """\
mesh: acme
topology: {}
outage_window: 72h
exchanges:
  - name: orders
  - {{name: secret, from: [paris], to: [tokyo], never_via: [lima]}}
sites:
  paris: {{cluster_id: p}}
  tokyo: {{cluster_id: t}}
  lima: {{cluster_id: l}}
"""


def mesh(folder: Path, topology: str) -> Mesh:
    (folder / "mesh.yaml").write_text(FILE.format(topology))
    return load_mesh(folder / "mesh.yaml")


def lost(destination: str, exchange: str = "orders") -> Lost:
    name = BatchName.parse(f"p/0102030405060708/{exchange}.0>*/1")
    return Lost(name, 0, bytes(16), destination, "")


def test_the_origin_comes_first_and_who_lacks_it_last(tmp_path: Path) -> None:
    sources = Sources(mesh(tmp_path, "complete"))
    assert sources.of(lost("t")) == ["paris", "lima", "tokyo"]
    assert sources.of(lost("l")) == ["paris", "tokyo", "lima"]


def test_only_those_from_which_a_batch_gets_there_are_asked(tmp_path: Path) -> None:
    sources = Sources(mesh(tmp_path, "ring"))
    assert sources.of(lost("t", "secret")) == ["paris", "tokyo"]


def test_a_site_that_left_the_mesh_is_sent_nothing(tmp_path: Path) -> None:
    assert Sources(mesh(tmp_path, "complete")).of(lost("gone")) == []


@pytest.mark.parametrize("destination", ["t", "l"])
def test_an_origin_that_left_leaves_the_others(tmp_path: Path, destination: str) -> None:
    one = lost(destination)
    series = one.batch.series._replace(origin="gone")
    one = one._replace(batch=one.batch._replace(series=series))
    assert sorted(Sources(mesh(tmp_path, "complete")).of(one)) == ["lima", "paris", "tokyo"]


def test_only_those_whose_repairs_are_taken_are_asked_and_who_lacks_it(tmp_path: Path) -> None:
    signing = replace(mesh(tmp_path, "complete"), repairers=("lima",))
    assert Sources(signing).of(lost("t")) == ["lima", "tokyo"]
    assert Sources(replace(signing, repairers=())).of(lost("t")) == ["tokyo"]
