"""`isthmus pause`, `resume` and `drain`: hold back a site or link, release, or empty a site."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from federation.mesh import Mesh
from federation.wording import numbered
from isthmus.completion import link_names, site_names
from isthmus.hold_orders import HoldTarget, hold, targets_or_exit, until_obeyed
from isthmus.known.known_meshes import mesh_or_known
from isthmus.options import (
    DEFAULT_STATE,
    EXIT_FAULT,
    MeshFile,
    SiteName,
    StateFolder,
    site_or_exit,
)
from isthmus.status import status_of
from relay.node.site_folder import STANDBY
from relay.node.site_slots import worst_of
from relay.operator.holds import Holds

Sites = Annotated[
    list[str] | None,
    typer.Option(
        "--site", metavar="SITE", help="This site; may be repeated.", autocompletion=site_names
    ),
]
Links = Annotated[
    list[str] | None,
    typer.Option(
        "--link",
        metavar="FROM-TO",
        help="This link, one way; may be repeated.",
        autocompletion=link_names,
    ),
]


def pause(
    file: MeshFile, site: Sites = None, link: Links = None, state: StateFolder = DEFAULT_STATE
) -> None:
    """Hold back a site or a link until `isthmus resume`, over restarts too.

    A paused site takes nothing from its egress queues and delivers nothing; its log keeps and
    passes on the messages that it receives. A paused link carries nothing; its messages wait in the
    sender's log, for as long as the outage window. Run the command where the site's state folder
    is: for a link, the sender's.

    Example: isthmus pause mesh.yaml --link paris-tokyo
    """
    mesh = mesh_or_known(file, state, site or ())
    targets = targets_or_exit(file, mesh, state, site, link)
    _order(mesh, state, targets, lambda holds, one: one.added_to(holds), "paused")


def resume(
    file: MeshFile, site: Sites = None, link: Links = None, state: StateFolder = DEFAULT_STATE
) -> None:
    """Let a paused site or link go on. A site under an order to drain stays in the mesh.

    Example: isthmus resume mesh.yaml --site paris
    """
    mesh = mesh_or_known(file, state, site or ())
    targets = targets_or_exit(file, mesh, state, site, link)
    _order(mesh, state, targets, lambda holds, one: one.taken_from(holds), "goes on")


def _order(
    mesh: Mesh,
    state: Path,
    targets: list[HoldTarget],
    change: Callable[[Holds, HoldTarget], Holds],
    outcome: str,
) -> None:
    for one in targets:
        hold(state, one.site, lambda holds, one=one: change(holds, one))  # type: ignore[misc]
    still = asyncio.run(until_obeyed(mesh, state, targets, is_held=outcome == "paused"))
    for one in targets:
        typer.echo(f"{one.name}: {outcome}{still[one]}")


POLL_S = 0.5


def drain(
    file: MeshFile,
    site: SiteName,
    waits: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Return only once the site is drained.")
    ] = True,
    state: StateFolder = DEFAULT_STATE,
) -> None:
    """Empty a site that is to leave the mesh; returns when the site has nothing that others need.

    End the site's publishers first. Its egress queues are emptied, its links in end, and the
    messages of its log go to its neighbours and into its own queues. Then take the site out of the
    mesh file and `isthmus apply` the file. Ctrl-C ends only the waiting: the site goes on draining,
    also after a restart, until `isthmus resume FILE --site SITE`. With --no-wait the command
    returns once the order is given.

    Exit status 0 when drained, 1 if its node does not run.

    Example: isthmus drain mesh.yaml lima
    """
    mesh = mesh_or_known(file, state, [site])
    site_or_exit(file, mesh, site)
    hold(state, site, lambda holds: replace(holds, paused=False, draining=True, quiescing=False))
    if not waits:
        typer.echo(f"{site} is to drain; `isthmus status {file}` shows when it is drained")
        return
    if not asyncio.run(_until_drained(mesh, site, state)):
        raise typer.Exit(EXIT_FAULT)
    typer.echo(
        f"{site} is drained: take it out of {file}, then `isthmus apply {file}`; what it still "
        "has for people (dead letters, quarantine, its applications' queues) stays at its broker"
    )


async def _until_drained(mesh: Mesh, site: str, state: Path) -> bool:
    shown = ""
    while True:
        content = (await status_of(mesh, state)).content["sites"][site]
        slots = content.get("slots", [content])
        word, reason = worst_of(one["state"] for one in slots), content.get("reason") or ""
        if word == "drained":
            if elsewhere := [n for n, one in enumerate(slots) if one["state"] == STANDBY]:
                typer.echo(
                    f"{site}: {numbered('slot', elsewhere)} run at other machines: see `isthmus"
                    " status` there",
                    err=True,
                )
            return True
        line = f"{site}: {word}{f': {reason}' if reason else ''}"
        if line != shown:
            typer.echo(line, err=True)
            shown = line
        if word == "stopped" or (word == "down" and content.get("node_pid") is None):
            typer.echo(f"{site}: its node does not run; it drains as soon as it does", err=True)
            return False
        await asyncio.sleep(POLL_S)
