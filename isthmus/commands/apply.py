"""`isthmus apply FILE`: make the brokers match the mesh file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from federation.brokers.apply_report import SiteReport
from federation.mesh import Mesh
from isthmus.known.address_book import address_book_or_exit
from isthmus.known.cautions import cautions, refusals
from isthmus.known.known_meshes import KnownMeshes
from isthmus.known.since_applied import changes_since_applied
from isthmus.options import (
    DEFAULT_STATE,
    EXIT_FAULT,
    EXIT_USAGE,
    AsJson,
    MeshFile,
    OnlySites,
    StateFolder,
    chosen_or_exit,
    exit_with,
    reading_or_exit,
)
from isthmus.site_apply import apply_sites, lines
from isthmus.up.announcements import NotTakenUp, notify_supervisor


def apply(
    file: MeshFile,
    site: OnlySites = None,
    state: StateFolder = DEFAULT_STATE,
    as_json: AsJson = False,
    everything: Annotated[
        bool, typer.Option("--all", help="List what was there already too.")
    ] = False,
) -> None:
    """Declare at every site's broker what the mesh needs; delete nothing.

    Shows the changes of the file since the last apply, what was created or changed at the brokers,
    what differs and cannot be changed in place, and what could not be checked. Warns of what a
    change costs (a site that leaves undrained, a shorter outage window). A second apply does
    nothing. Running nodes take up the file by themselves within seconds; a running `isthmus up`
    starts and ends processes as the file requires. Exit status 0 if all is as it should be, 1 if
    something differs or failed, 2 if the file is wrong.

    Example: isthmus apply mesh.yaml --site paris
    """
    mesh = possible_mesh_or_exit(file, state, site or None)
    chosen = chosen_or_exit(file, mesh, site)
    since = changes_since_applied(mesh, chosen, state)
    if not as_json:
        typer.echo("\n".join(since.lines()))
    warnings = cautions(file, mesh, since, state)
    for one in warnings:
        typer.echo(f"warning: {one}", err=True)
    try:
        asyncio.run(notify_supervisor(file, mesh, state, partial(typer.echo, err=True)))
    except NotTakenUp as error:
        exit_with(str(error), EXIT_FAULT)
    book = address_book_or_exit(mesh, state)
    reports = asyncio.run(apply_sites(book, chosen, state))
    if as_json:
        typer.echo(
            json.dumps(
                as_object(mesh, reports) | since.as_object() | {"warnings": warnings}, indent=1
            )
        )
    else:
        for report in reports:
            typer.echo("\n".join(lines(report, everything=everything)))
    if not all(report.ok for report in reports):
        raise typer.Exit(EXIT_FAULT)


def possible_mesh_or_exit(file: Path, state: Path, sites: Sequence[str] | None = None) -> Mesh:
    """Read the mesh; end the command if invalid, or if the nodes that ran here could not take up
    the mesh. `sites` limits warnings.
    """
    reading, mesh = reading_or_exit(file, sites)
    refused = [str(reading.problem(one)) for one in refusals(mesh, KnownMeshes(state))]
    if refused:
        exit_with("\n".join(refused), EXIT_USAGE)
    return mesh


def as_object(mesh: Mesh, reports: Sequence[SiteReport]) -> dict[str, object]:
    return {
        "mesh": mesh.name,
        "revision": mesh.revision,
        "ok": all(report.ok for report in reports),
        "sites": {report.site: [asdict(item) for item in report.items] for report in reports},
    }
