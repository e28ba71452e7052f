"""The mesh that a node begins with, and that commands look at: its file's, or, while the file is
wrong, the last one that ran.

A mistake in the file must not keep a node away that happens to be restarted meanwhile, nor an
operator from seeing how the mesh is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import typer

from federation.mesh import BrokerAuth, Mesh
from federation.mesh_file import read_mesh
from isthmus.known.known_meshes import KnownMeshes
from isthmus.options import EXIT_USAGE, reached_from, say_problems
from relay.ledger.revisions import KeptRevisions


def mesh_or_last(file: Path, sites: Sequence[str], folders: Sequence[Path]) -> Mesh:
    """`folders` are those of the sites. What is wrong goes to standard error; ends the command if
    there is no mesh to run.
    """
    reading = read_mesh(file)
    say_problems(reading, reached_from(reading.mesh, sites))
    if reading.mesh is not None:
        return reading.mesh
    last = _last(sites, folders)
    if last is None:
        raise typer.Exit(EXIT_USAGE)
    typer.echo(f"going on with revision {last.revision}, the last that ran here", err=True)
    return last


def mesh_or_known(file: Path, state: Path, sites: Collection[str] | None = None) -> Mesh:
    """For commands that look at what runs, or hold it back: while the file is wrong, the mesh that
    was applied or taken up last, by what the state folder knows. What is wrong goes to standard
    error, but no warnings about others than `sites`; ends the command if there is no mesh at all.
    """
    reading = read_mesh(file)
    say_problems(reading, sites)
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
    """The revision that all of them ran last, if it is the same and can be run."""
    kept = [KeptRevisions(folder / "ledger" / "revisions").latest() for folder in folders]
    first = kept[0] if kept else None
    if first is None or any(one is None or one.revision != first.revision for one in kept):
        return None
    # A password that stood in the file itself was not kept.
    brokers = [site.broker for site in first.sites.values() if site.broker is not None]
    can_log_in = all(one.password or one.auth is BrokerAuth.EXTERNAL for one in brokers)
    if not can_log_in or not set(sites) <= set(first.sites):
        return None
    return first
