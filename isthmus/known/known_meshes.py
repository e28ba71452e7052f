"""Meshes that a state folder remembers from applies and nodes, for while the mesh file is wrong.

A mistake in the file must not keep down a node that happens to restart, nor hide the mesh from its
operator.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import typer

from federation.mesh import BrokerAuth, Mesh
from federation.mesh_file import read_mesh
from federation.mesh_json import mesh_from_json
from isthmus.options import EXIT_USAGE, print_problems, reached_from
from relay.ledger.revisions import KeptRevisions


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


def mesh_or_last(file: Path, sites: Sequence[str], folders: Sequence[Path]) -> Mesh:
    """Read the mesh file, or fall back to the last revision in the sites' `folders`; print problems
    to standard error and end the command without either.
    """
    reading = read_mesh(file)
    print_problems(reading, reached_from(reading.mesh, sites))
    if reading.mesh is not None:
        return reading.mesh
    last = _ran_last(sites, folders)
    if last is None:
        raise typer.Exit(EXIT_USAGE)
    typer.echo(f"going on with revision {last.revision}, the last that ran here", err=True)
    return last


def mesh_or_known(file: Path, state: Path, sites: Collection[str] | None = None) -> Mesh:
    """Read the mesh file, or fall back to the mesh applied or taken up last, for commands that look
    at what runs or hold it back.

    Problems go to standard error, warnings only about `sites`; the command ends if no mesh is
    known.
    """
    reading = read_mesh(file)
    print_problems(reading, sites)
    if reading.mesh is not None:
        return reading.mesh
    known = KnownMeshes(state).latest()
    if known is None:
        raise typer.Exit(EXIT_USAGE)
    typer.echo(
        f"warning: {file} cannot be used: this goes by revision {known.revision} of mesh "
        f"{known.name}, the last that {state} knows",
        err=True,
    )
    return known


def _ran_last(sites: Sequence[str], folders: Sequence[Path]) -> Mesh | None:
    """Return the revision that all sites ran last, if common to all and able to run."""
    kept = [KeptRevisions(folder / "ledger" / "revisions").latest() for folder in folders]
    first = kept[0] if kept else None
    if first is None or any(one is None or one.revision != first.revision for one in kept):
        return None
    # A password in the file itself was not kept.
    brokers = [site.broker for site in first.sites.values() if site.broker is not None]
    can_log_in = all(one.password or one.auth is BrokerAuth.EXTERNAL for one in brokers)
    if not can_log_in or not set(sites) <= set(first.sites):
        return None
    return first
