"""Mesh for a starting node or an operator's look: the file's, or the last that ran while the file
is wrong.

A mistake in the file must not keep down a node that happens to restart, nor hide the mesh from its
operator.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import typer

from federation.mesh import BrokerAuth, Mesh
from federation.mesh_file import read_mesh
from isthmus.known.known_meshes import KnownMeshes
from isthmus.options import EXIT_USAGE, print_problems, reached_from
from relay.ledger.revisions import KeptRevisions


def mesh_or_last(file: Path, sites: Sequence[str], folders: Sequence[Path]) -> Mesh:
    """Read the mesh file, or fall back to the last revision in the sites' `folders`; print problems
    to standard error and end the command without either.
    """
    reading = read_mesh(file)
    print_problems(reading, reached_from(reading.mesh, sites))
    if reading.mesh is not None:
        return reading.mesh
    last = _last(sites, folders)
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


def _last(sites: Sequence[str], folders: Sequence[Path]) -> Mesh | None:
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
