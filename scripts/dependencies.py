"""Check of the dependencies: each locked by hash, usable by its licence, without known faults.

    python -m scripts.dependencies [OSV.zip]

Needs no network. Without advisories only locks and licences are checked. With a copy of OSV's
advisories for PyPI (https://osv-vulnerabilities.storage.googleapis.com/PyPI/all.zip) every locked
version is looked up in the copy. Exit 1: something has to be done, and is printed.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[1]
LOCKS = (
    *("requirements.lock", "requirements-audit.lock", "docker/requirements.lock"),
    *("requirements-fuzz.lock", "requirements-sbom.lock", "requirements-charts.lock"),
    *("requirements-bench.lock", "requirements-cluster.lock"),
)
PERMITTED = re.compile(
    r"MIT|BSD|Apache|ISC|PSF|Python Software Foundation|MPL|Mozilla|Zlib|0BSD|CC0|Dual License",
    re.IGNORECASE,
)
"""Licences under which a work of another licence may use something as it is."""
NOT_LOCKED = {"pip", "isthmus"}
"""Installed by others: by Python itself, and by the checkout."""


@dataclass(frozen=True, slots=True)
class Locked:
    """One line of a lock file, with the hashes below it."""

    lock: str
    name: str
    version: str
    hashes: tuple[str, ...]


def locked(lock: str, text: str) -> Iterator[Locked]:
    """All that a lock file names. Raises ValueError for a line that locks nothing."""
    for entry in text.replace("\\\n", " ").splitlines():
        if not entry.strip() or entry.lstrip().startswith("#"):
            continue
        said, *rest = entry.split(" --hash=")
        requirement = Requirement(said.strip())
        pins = [one.version for one in requirement.specifier if one.operator == "=="]
        if len(pins) != 1:
            raise ValueError(f"{lock}: {requirement} is not locked to one version")
        name = canonicalize_name(requirement.name)
        yield Locked(lock, name, pins[0], tuple(one.strip() for one in rest))


def all_locked(root: Path = ROOT) -> list[Locked]:
    return [one for lock in LOCKS for one in locked(lock, (root / lock).read_text())]


def without_hash(entries: Iterable[Locked]) -> Iterator[str]:
    """Yield the requirements without a hash."""
    for one in entries:
        if not one.hashes or not all(h.startswith("sha256:") for h in one.hashes):
            yield f"{one.lock}: {one.name} has no SHA-256: run `make lock`"


def not_in_locks(entries: Iterable[Locked], root: Path = ROOT) -> Iterator[str]:
    """Yield the requirements of pyproject.toml that no lock has: the lock is out of date."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["dev"], *extras["audit"]]
    known: dict[str, list[Version]] = {}
    for one in entries:
        known.setdefault(one.name, []).append(Version(one.version))
    for text in wanted:
        requirement = Requirement(text)
        found = known.get(canonicalize_name(requirement.name), [])
        if not any(requirement.specifier.contains(version) for version in found):
            yield f"pyproject.toml: {requirement} is in no lock file: run `make lock`"


def not_as_locked(entries: Iterable[Locked]) -> Iterator[str]:
    """Yield the installed distributions that no lock file has in their version."""
    known: dict[str, set[str]] = {}
    for one in entries:
        known.setdefault(one.name, set()).add(one.version)
    for distribution in metadata.distributions():
        name = canonicalize_name(distribution.metadata["Name"])
        versions = known.get(name)
        if name not in NOT_LOCKED and (versions is None or distribution.version not in versions):
            yield f"{name} {distribution.version} is installed, and locked is {versions or 'none'}"


def licence_of(told: metadata.PackageMetadata) -> str:
    """Return a distribution's licence: expression, classifiers, or first line of the text."""
    if expression := told.get("License-Expression"):
        return str(expression)
    named = [one for one in told.get_all("Classifier") or () if one.startswith("License ::")]
    if named:
        return ", ".join(one.rpartition("::")[2].strip() for one in named)
    return (told.get("License") or "").strip().partition("\n")[0]


def not_permitted() -> Iterator[str]:
    """Yield the installed distributions whose licence a person has to check."""
    for distribution in metadata.distributions():
        licence = licence_of(distribution.metadata)
        for part in re.split(r"\s+AND\s+", licence):
            if not PERMITTED.search(part):
                yield f"{distribution.metadata['Name']}: licence {part or 'not said'}"


def faults(entries: Iterable[Locked], advisories: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield OSV's advisories on locked versions."""
    by_name: dict[str, dict[str, set[str]]] = {}
    for one in entries:
        by_name.setdefault(one.name, {}).setdefault(one.version, set()).add(one.lock)
    for advisory in advisories:
        if advisory.get("withdrawn"):
            continue
        for affected in advisory.get("affected", ()):
            package = affected.get("package", {})
            if package.get("ecosystem") != "PyPI":
                continue
            for version, locks in by_name.get(canonicalize_name(package["name"]), {}).items():
                if _affects(affected, version):
                    said = advisory.get("summary") or advisory.get("details", "")[:80]
                    where = ", ".join(sorted(locks))
                    yield f"{advisory['id']}: {package['name']} {version} ({where}): {said}"


def _affects(affected: dict[str, Any], version: str) -> bool:
    if version in affected.get("versions", ()):
        return True
    return any(
        _in_range(one["events"], Version(version))
        for one in affected.get("ranges", ())
        if one.get("type") == "ECOSYSTEM"
    )


def _in_range(events: Iterable[dict[str, str]], version: Version) -> bool:
    inside = False
    for event in events:
        for kind, text in event.items():
            try:
                at = Version("0" if text == "0" else text)
            except InvalidVersion:
                continue
            if kind == "introduced" and version >= at:
                inside = True
            elif (kind == "fixed" and version >= at) or (kind == "last_affected" and version > at):
                inside = False
    return inside


def read_advisories(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON documents of OSV's archive."""
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            if name.endswith(".json"):
                yield json.loads(archive.read(name))


def main() -> None:
    entries = all_locked()
    told = [
        *without_hash(entries),
        *not_in_locks(entries),
        *not_as_locked(entries),
        *not_permitted(),
    ]
    asked = [Path(one) for one in sys.argv[1:] if one]
    for file in asked:
        told += faults(entries, read_advisories(file))
    for line in told:
        print(line)
    looked = "and no known fault" if asked else "known faults were not looked for"
    print(
        f"{len({(one.name, one.version) for one in entries})} locked versions; "
        + (f"{len(told)} to look at" if told else f"nothing to do, {looked}")
    )
    sys.exit(1 if told else 0)


if __name__ == "__main__":
    main()
