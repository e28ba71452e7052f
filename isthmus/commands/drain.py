"""`isthmus drain FILE SITE`: bring a site to where it can be taken out of the mesh without loss."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import typer

from federation.mesh import Mesh
from isthmus.hold_orders import hold
from isthmus.known.last_mesh import mesh_or_known
from isthmus.options import (
    DEFAULT_STATE,
    EXIT_FAULT,
    MeshFile,
    SiteName,
    StateFolder,
    site_or_exit,
)
from isthmus.status.report import status_of

POLL_S = 0.5


def drain(file: MeshFile, site: SiteName, state: StateFolder = DEFAULT_STATE) -> None:
    """Empty a site that is to leave the mesh; returns when it has nothing that others need.

    End the site's publishers first. Its egress queues are emptied, its links in end, and what its
    log has goes to its neighbours and into its own queues. Then take the site out of the mesh file
    and `isthmus apply` it. Ctrl-C ends only the waiting: the site goes on draining, also after a
    restart, until `isthmus resume FILE --site SITE`.

    Exit status 0 when drained, 1 if its node does not run.

    Example: isthmus drain mesh.yaml lima
    """
    mesh = mesh_or_known(file, state, [site])
    site_or_exit(file, mesh, site)
    hold(state, site, lambda holds: replace(holds, paused=False, draining=True))
    if not asyncio.run(_until_drained(mesh, site, state)):
        raise typer.Exit(EXIT_FAULT)
    typer.echo(
        f"{site} is drained: take it out of {file}, then `isthmus apply {file}`; what it still "
        "has for people (dead letters, quarantine, its applications' queues) stays at its broker"
    )


async def _until_drained(mesh: Mesh, site: str, state: Path) -> bool:
    shown = ""
    while True:
        told = (await status_of(mesh, state)).told["sites"][site]
        word, reason = told["state"], told.get("reason") or ""
        if word == "drained":
            return True
        line = f"{site}: {word}{f': {reason}' if reason else ''}"
        if line != shown:
            typer.echo(line, err=True)
            shown = line
        if word == "stopped" or (word == "down" and told.get("node_pid") is None):
            typer.echo(f"{site}: its node does not run; it drains as soon as it does", err=True)
            return False
        await asyncio.sleep(POLL_S)
