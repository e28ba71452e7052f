"""Locks, licences and advisories of what Isthmus stands on."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from scripts import dependencies
from scripts.dependencies import Locked

ENTRY = Locked("requirements.lock", "aiohttp", "3.14.5", ("sha256:aa",))


def test_all_that_is_installed_is_locked_by_hash_and_may_be_used() -> None:
    entries = dependencies.all_locked()
    assert len(entries) > 100
    assert [*dependencies.without_hash(entries)] == []
    assert [*dependencies.not_in_locks(entries)] == []
    assert [*dependencies.not_as_locked(entries)] == []
    assert [*dependencies.not_permitted()] == []


def test_a_lock_file_is_read_with_its_markers_and_hashes() -> None:
    text = (
        "# made by uv\nPy_YAML==6.0.3 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
        "colorama==0.4.6 ; sys_platform == 'win32' \\\n    --hash=sha256:cc\n"
    )
    assert [*dependencies.locked("l", text)] == [
        Locked("l", "py-yaml", "6.0.3", ("sha256:aa", "sha256:bb")),
        Locked("l", "colorama", "0.4.6", ("sha256:cc",)),
    ]
    with pytest.raises(ValueError, match="not locked to one version"):
        [*dependencies.locked("l", "aiohttp>=3\n")]


def test_what_lacks_a_hash_or_is_in_no_lock_is_told(tmp_path: Path) -> None:
    bare = Locked("l", "aiohttp", "3.14.5", ())
    assert [*dependencies.without_hash([ENTRY, bare])] == [
        "l: aiohttp has no SHA-256: run `make lock`"
    ]
    (tmp_path / "pyproject.toml").write_text(
        '[project]\ndependencies = ["aiohttp>=4", "numpy>=2"]\n'
        "[project.optional-dependencies]\ndev = []\naudit = []\n"
    )
    told = [*dependencies.not_in_locks([ENTRY], tmp_path)]
    assert [one.partition(" is in no")[0] for one in told] == [
        "pyproject.toml: aiohttp>=4",
        "pyproject.toml: numpy>=2",
    ]
    assert any("pytest" in one for one in dependencies.not_as_locked([ENTRY]))


def advisory(**affected: Any) -> dict[str, Any]:
    package = {"ecosystem": "PyPI", "name": "AioHTTP"}
    return {"id": "OSV-1", "summary": "bad", "affected": [{"package": package, **affected}]}


def ranged(*events: dict[str, str]) -> dict[str, Any]:
    return advisory(ranges=[{"type": "ECOSYSTEM", "events": list(events)}])


@pytest.mark.parametrize(
    ("one", "affects"),
    [
        (advisory(versions=["3.14.5"]), True),
        (advisory(versions=["3.14.4"]), False),
        (ranged({"introduced": "0"}, {"fixed": "3.14.5"}), False),
        (ranged({"introduced": "0"}, {"fixed": "3.14.6"}), True),
        (ranged({"introduced": "3.14.5"}), True),
        (ranged({"introduced": "3.15"}), False),
        (ranged({"introduced": "0"}, {"last_affected": "3.14.5"}), True),
        (ranged({"introduced": "0"}, {"last_affected": "3.14.4"}), False),
        (ranged({"introduced": "0"}, {"fixed": "3"}, {"introduced": "3.14"}), True),
        ({**advisory(versions=["3.14.5"]), "withdrawn": "2026-01-01"}, False),
    ],
)
def test_an_advisory_is_told_of_the_versions_that_it_is_about(
    tmp_path: Path, one: dict[str, Any], affects: bool
) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("OSV-1.json", json.dumps(one))
        archive.writestr("README", "no advisory")
    told = [*dependencies.faults([ENTRY], dependencies.read_advisories(tmp_path / "all.zip"))]
    assert told == (["OSV-1: AioHTTP 3.14.5 (requirements.lock): bad"] if affects else [])
