"""What a site shows at other sites' brokers: `link_password`."""

from __future__ import annotations

from pathlib import Path

import pytest

from federation.mesh_diff import mesh_diff
from federation.mesh_file import load_mesh, read_mesh
from federation.mesh_file.problem import Severity
from federation.mesh_json import mesh_as_json, mesh_from_json
from tests.federation.marked import BROKER, the_error, with_tokyo
from tests.federation.meshes import TRIANGLE, mesh_of, problems_of

HUB = """\
mesh: acme
topology: {hub: head}
exchanges: [{name: orders}]
sites: {head: {broker: "amqps://r@h/v", password: "env:HEAD"}}
branches: {names: [a, b, c, d, e], template: {LINK_PASSWORD}}
"""
SHARED = """\
mesh: acme
topology: complete
exchanges: [{name: orders}]
sites:
  a: {broker: "amqp://r@a", password: "env:ALL"}
  b: {broker: "amqp://r@b", password: "env:ALL"}
"""


def test_it_is_relative_to_the_file_that_names_it_and_changes_the_revision(tmp_path: Path) -> None:
    revisions = set()
    for folder in (tmp_path, tmp_path / "sub"):
        folder.mkdir(exist_ok=True)
        file = folder / "mesh.yaml"
        file.write_text(TRIANGLE.replace("paris: {}", "paris: {link_password: 'file:s/p'}"))
        mesh = load_mesh(file)
        assert mesh.sites["paris"].link_password == f"file:{folder}/s/p"
        revisions.add(mesh.revision)
    assert len(revisions) == 1
    assert revisions.isdisjoint({mesh_of(TRIANGLE).revision})
    assert mesh_from_json(mesh_as_json(mesh)).sites == mesh.sites
    assert "link_password changed" in " ".join(mesh_diff(mesh_of(TRIANGLE), mesh))


def test_in_an_included_file_it_is_relative_to_that(tmp_path: Path) -> None:
    (tmp_path / "regions").mkdir()
    (tmp_path / "regions" / "eu.yaml").write_text("sites: {rome: {link_password: 'file:p'}}\n")
    file = tmp_path / "mesh.yaml"
    file.write_text("include: regions/eu.yaml\n" + TRIANGLE)
    rome = load_mesh(file).sites["rome"]
    assert rome.link_password == f"file:{tmp_path}/regions/p"


@pytest.mark.parametrize("text", ["secret", "env:", "file:", "env: A", "$PW", ""])
def test_in_clear_or_empty_it_is_refused(text: str) -> None:
    marked = with_tokyo(f"{BROKER}, link_password: ^'{text}'")
    assert "this names no place where the password is; write env:NAME or file:PATH" in the_error(
        marked
    )


def test_whose_broker_s_password_others_would_have_to_hold_is_warned_of_once() -> None:
    [problem] = problems_of(HUB.replace("{LINK_PASSWORD}", "{}"))
    assert problem.severity is Severity.WARNING
    assert problem.site == "head"
    assert "`a`, `b`, `c` and 2 more would have to hold the password" in problem.wrong
    assert problems_of(HUB.replace("{LINK_PASSWORD}", '{link_password: "file:s/{site}"}')) == []


def test_one_password_for_all_is_not_warned_of() -> None:
    assert problems_of(SHARED) == []
    assert len(problems_of(SHARED.replace("ALL", "A", 1))) == 2


def test_where_certificates_log_in_there_is_no_password_to_hold() -> None:
    text = HUB.replace("{LINK_PASSWORD}", "{}").replace('password: "env:HEAD"', "auth: external")
    assert not [one for one in problems_of(text) if "would have to hold" in one.wrong]


def test_the_file_can_be_used_with_the_warning(tmp_path: Path) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text(HUB.replace("{LINK_PASSWORD}", "{}"))
    assert read_mesh(file).mesh is not None


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("^users: separate", "without a `broker` they are for; take it out"),
        (f"{BROKER}, ^users: separate", "without a `management` where they could be made; add"),
    ],
)
def test_separate_users_take_a_broker_with_management(keys: str, said: str) -> None:
    assert said in the_error(with_tokyo(keys))
    good = f"{BROKER}, management: 'https://h.example', users: separate"
    broker = mesh_of(with_tokyo(good)).sites["tokyo"].broker
    assert broker is not None
    assert broker.separate_users
    assert mesh_of(with_tokyo(good)).revision != mesh_of(with_tokyo(good[:-17])).revision
