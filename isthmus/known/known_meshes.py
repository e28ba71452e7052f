"""Meshes that a state folder remembers from applies and nodes.

While the mesh file is wrong or gone, they show which sites and links exist.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from federation.mesh import Mesh
from federation.mesh_json import mesh_from_json


class KnownMeshes:
    """Known meshes of one state folder; a revision shared by sites is read once."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._read: dict[str, Mesh | None] = {}

    def ran_last(self, site: str) -> Mesh | None:
        """Return the mesh that the site's node took up last, or None."""
        for file in _latest_first(_revisions(self._state / "sites" / site)):
            if (mesh := self._mesh(file)) is not None:
                return mesh
        return None

    def delivered_at(self, site: str) -> frozenset[str]:
        """Return the exchanges that any revision run by the site's node delivered to."""
        found: set[str] = set()
        for file in _revisions(self._state / "sites" / site):
            if (mesh := self._mesh(file)) is not None and site in mesh.sites:
                found |= {one.delivers_to for one in mesh.exchanges.values() if one.reaches(site)}
        return frozenset(found)

    def latest(self) -> Mesh | None:
        """Return the mesh applied or taken up last, or None."""
        files = [*(self._state / "applied").glob("*.revision.*.json")]
        for folder in (self._state / "sites").glob("*"):
            files += _revisions(folder)
        for file in _latest_first(files):
            if (mesh := self._mesh(file)) is not None:
                return mesh
        return None

    def sites_that_ran(self) -> list[str]:
        """Return the sites with a node's folder here."""
        return sorted(folder.name for folder in (self._state / "sites").glob("*"))

    def _mesh(self, file: Path) -> Mesh | None:
        """Read a mesh, or return None if unreadable: an earlier one has to do."""
        revision = file.name.split(".")[-2]
        if revision not in self._read:
            self._read[revision] = _read(file)
        return self._read[revision]


def _revisions(folder: Path) -> list[Path]:
    return [*(folder / "ledger" / "revisions").glob("*.json")]


def _latest_first(files: list[Path]) -> Iterator[Path]:
    """Sort by modification time, renewed at each apply or start."""
    yield from sorted(files, key=_written_ns, reverse=True)


def _written_ns(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:  # `apply` drops what no site is at any more
        return 0


def _read(file: Path) -> Mesh | None:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return mesh_from_json(content.get("mesh") if "taken_up_ms" in content else content)
    except (OSError, ValueError, AttributeError):
        return None
