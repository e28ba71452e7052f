"""Passwords that Isthmus makes: once, for its owner's eyes, the same for all."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from federation.credentials import SECRETS_FILE, CredentialsError, load_or_make, make_credentials
from tests.federation.meshes import TRIANGLE, mesh_of

MESH = mesh_of(TRIANGLE)


def test_they_are_made_once_and_then_read_back(tmp_path: Path) -> None:
    first = load_or_make(tmp_path / "state", MESH)
    again = load_or_make(tmp_path / "state", MESH)
    assert dict(first.sites) == dict(again.sites)
    assert set(first.sites) == {"paris", "tokyo", "sydney"}
    made = [getattr(p, kind) for p in first.sites.values() for kind in ("relay", "link", "app")]
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


def _made(state: Path) -> dict[str, str]:
    return {name: site.relay for name, site in load_or_make(state, MESH).sites.items()}


def test_processes_that_start_together_all_get_the_same(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        results = pool.map(_made, [tmp_path] * 8, chunksize=1)
    assert all(result == results[0] for result in results)
