"""The mesh that a node begins with: its file's, or, while the file is wrong, the last one that it
ran. A mistake in the file must not keep a node away that happens to be restarted meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from federation.mesh import Mesh
from federation.mesh_file import read_mesh
from isthmus.options import EXIT_USAGE
from relay.ledger.revisions import KeptRevisions


def mesh_or_last(file: Path, sites: Sequence[str], folders: Sequence[Path]) -> Mesh:
    """`folders` are those of the sites. What is wrong goes to standard error; ends the command if
    there is no mesh to run.
    """
    reading = read_mesh(file)
    for problem in reading.problems:
        typer.echo(str(problem), err=True)
    if reading.mesh is not None:
        return reading.mesh
    last = _last(sites, folders)
    if last is None:
        raise typer.Exit(EXIT_USAGE)
    typer.echo(f"going on with revision {last.revision}, the last that ran here", err=True)
    return last


def _last(sites: Sequence[str], folders: Sequence[Path]) -> Mesh | None:
    """The revision that all of them ran last, if it is the same and can be run."""
    kept = [KeptRevisions(folder / "ledger" / "revisions").latest() for folder in folders]
    first = kept[0] if kept else None
    if first is None or any(one is None or one.revision != first.revision for one in kept):
        return None
    # A password that stood in the file itself was not kept.
    brokers = [site.broker for site in first.sites.values() if site.broker is not None]
    if not all(broker.password for broker in brokers) or not set(sites) <= set(first.sites):
        return None
    return first
