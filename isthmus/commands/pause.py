"""`isthmus pause` and `isthmus resume`: hold back a site or a link, and let it go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from federation.mesh import Mesh
from isthmus.hold_orders import Place, hold, places_or_exit, until_obeyed
from isthmus.known.last_mesh import mesh_or_known
from isthmus.options import DEFAULT_STATE, MeshFile, StateFolder
from relay.operator.holds import Holds

Sites = Annotated[
    list[str] | None,
    typer.Option("--site", metavar="SITE", help="This site; may be repeated."),
]
Links = Annotated[
    list[str] | None,
    typer.Option("--link", metavar="FROM-TO", help="This link, one way; may be repeated."),
]


def pause(
    file: MeshFile, site: Sites = None, link: Links = None, state: StateFolder = DEFAULT_STATE
) -> None:
    """Hold back a site or a link until `isthmus resume`, over restarts too.

    A paused site takes nothing from its egress queues and delivers nothing; what it receives is
    kept in its log and passed on. A paused link carries nothing; what it should carry waits in its
    sender's log, for as long as the outage window. To be run where the site's state folder is: for
    a link, its sender's.

    Example: isthmus pause mesh.yaml --link paris-tokyo
    """
    mesh = mesh_or_known(file, state, site or ())
    places = places_or_exit(file, mesh, state, site, link)
    _order(mesh, state, places, lambda holds, one: one.added_to(holds), "paused")


def resume(
    file: MeshFile, site: Sites = None, link: Links = None, state: StateFolder = DEFAULT_STATE
) -> None:
    """Let a paused site or link go on. A site that was to be drained stays in the mesh.

    Example: isthmus resume mesh.yaml --site paris
    """
    mesh = mesh_or_known(file, state, site or ())
    places = places_or_exit(file, mesh, state, site, link)
    _order(mesh, state, places, lambda holds, one: one.taken_from(holds), "goes on")


def _order(
    mesh: Mesh,
    state: Path,
    places: list[Place],
    change: Callable[[Holds, Place], Holds],
    said: str,
) -> None:
    for one in places:
        hold(state, one.site, lambda holds, one=one: change(holds, one))  # type: ignore[misc]
    obeyed = asyncio.run(until_obeyed(mesh, state, places, is_held=said == "paused"))
    for one in places:
        later = "" if one in obeyed else " as soon as its node runs"
        typer.echo(f"{one.name}: {said}{later}")
