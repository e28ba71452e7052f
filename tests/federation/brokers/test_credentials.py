"""Passwords that Isthmus makes: once, for its owner's eyes, the same for all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from federation.brokers.credentials import (
    KINDS,
    LATER_KINDS,
    SECRETS_FILE,
    CredentialsError,
    load_or_make,
    make_credentials,
)
from tests.federation.meshes import TRIANGLE, mesh_of

MESH = mesh_of(TRIANGLE)


def test_they_are_made_once_and_then_read_back(tmp_path: Path) -> None:
    first = load_or_make(tmp_path / "state", MESH)
    again = load_or_make(tmp_path / "state", MESH)
    assert dict(first.sites) == dict(again.sites)
    assert set(first.sites) == {"paris", "tokyo", "sydney"}
    made = [getattr(p, kind) for p in first.sites.values() for kind in (*KINDS, *LATER_KINDS)]
    assert len(set(made)) == len(made)
    assert all(len(password) >= 32 for password in made)


def test_only_their_owner_can_read_them(tmp_path: Path) -> None:
    load_or_make(tmp_path / "state", MESH)
    assert (tmp_path / "state" / SECRETS_FILE).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


def test_a_new_site_gets_new_ones_and_the_others_keep_theirs(tmp_path: Path) -> None:
    first = load_or_make(tmp_path, MESH)
    grown = load_or_make(tmp_path, mesh_of(TRIANGLE.replace("tokyo: {}", "rome: {}, oslo: {}")))
    assert grown.of("paris") == first.of("paris")
    assert grown.of("oslo") != grown.of("rome")
    assert grown.of("tokyo") == first.of("tokyo")
    assert load_or_make(tmp_path, MESH).of("oslo") == grown.of("oslo")


def test_a_file_of_an_earlier_version_keeps_its_passwords_and_gets_those_that_it_lacks(
    tmp_path: Path,
) -> None:
    first = load_or_make(tmp_path, MESH)
    file = tmp_path / SECRETS_FILE
    content = json.loads(file.read_text())
    for passwords in content["sites"].values():
        for kind in LATER_KINDS:
            del passwords[kind]
    file.write_text(json.dumps(content))
    upgraded = load_or_make(tmp_path, MESH)
    for site in MESH.sites:
        for kind in KINDS:
            assert getattr(upgraded.of(site), kind) == getattr(first.of(site), kind)
        for kind in LATER_KINDS:
            assert len(getattr(upgraded.of(site), kind)) >= 32
    assert load_or_make(tmp_path, MESH) == upgraded


def test_randomness_comes_in_as_an_argument() -> None:
    counter = iter(range(100))
    made = make_credentials(MESH, random_text=lambda count: f"{count}-{next(counter)}")
    assert made.of("paris").relay == "24-0"
    assert made.of("paris").link == "24-1"


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"format": 1, "sites": {"a": {}}}', '{"format": 2, "sites": {}}', "\x00"],
)
def test_a_damaged_file_is_told_and_left_alone(tmp_path: Path, content: str) -> None:
    file = tmp_path / SECRETS_FILE
    file.write_text(content)
    with pytest.raises(CredentialsError, match=r"secrets\.json"):
        load_or_make(tmp_path, MESH)
    assert file.read_text() == content


STARTED_TOGETHER = """
import sys
from pathlib import Path
from federation.brokers.credentials import load_or_make
from federation.mesh_file import load_mesh

folder = Path(sys.argv[1])
made = load_or_make(folder, load_mesh(folder / "m"))
print(sorted((name, site.relay) for name, site in made.sites.items()))
"""


def test_processes_that_start_together_all_get_the_same(tmp_path: Path) -> None:
    (tmp_path / "m").write_text(TRIANGLE)
    command = (sys.executable, "-c", STARTED_TOGETHER, str(tmp_path))
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    results = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert all(result == results[0] for result in results)
