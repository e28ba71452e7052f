"""What commands hold back at sites of this machine: they write the order, its node obeys it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from federation.mesh import Mesh
from isthmus.options import EXIT_FAULT, EXIT_USAGE, site_or_exit
from isthmus.status.report import status_of
from relay.operator.holds import Holds, HoldsBroken, read_holds, write_holds

OBEYED_WITHIN_S = 10.0
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Place:
    """A site, or one of the links that begin there."""

    site: str
    link: str = ""

    @property
    def name(self) -> str:
        return f"link {self.link}" if self.link else self.site

    def added_to(self, holds: Holds) -> Holds:
        """Held back as well."""
        if self.link:
            return replace(holds, links=holds.links | {self.link})
        return replace(holds, paused=True)

    def taken_from(self, holds: Holds) -> Holds:
        """Held back no more."""
        if self.link:
            return replace(holds, links=holds.links - {self.link})
        return replace(holds, paused=False, draining=False)

    def state_in(self, told: dict[str, Any]) -> str:
        """Its word in a status report."""
        if not self.link:
            return str(told["sites"][self.site]["state"])
        links = {f"{one['from']}-{one['to']}": one for one in told["links"]}
        return str(links[self.link]["state"])


def places_or_exit(
    file: Path, mesh: Mesh, state: Path, sites: Sequence[str] | None, links: Sequence[str] | None
) -> list[Place]:
    """What the options name; ends the command if it is nothing, unknown, or elsewhere."""
    site_or_exit(file, mesh, *(sites or ()))
    senders = {link.name: link.sender for link in mesh.links}
    for link in links or ():
        if link not in senders:
            known = ", ".join(senders) or "none"
            typer.echo(f"{file}: there is no link {link!r}; the mesh has {known}", err=True)
            raise typer.Exit(EXIT_USAGE)
    places = [Place(site) for site in sites or ()]
    places += [Place(senders[link], link) for link in links or ()]
    if not places:
        typer.echo("say what: --site SITE or --link FROM-TO", err=True)
        raise typer.Exit(EXIT_USAGE)
    for place in places:
        here_or_exit(state, place.site)
    return places


def here_or_exit(state: Path, site: str) -> Path:
    """The folder of a site whose node has run with this state folder; ends the command if none."""
    folder = state / "sites" / site
    if not folder.is_dir():
        typer.echo(
            f"{folder}: no node of {site} has run with this state folder: run the command where "
            "its node runs, or say which --state",
            err=True,
        )
        raise typer.Exit(EXIT_FAULT)
    return folder


def hold(state: Path, site: str, change: Callable[[Holds], Holds]) -> None:
    """Change the order for a site; ends the command if it cannot be written."""
    folder = here_or_exit(state, site)
    try:
        before = read_holds(folder)
        if (after := change(before)) != before:
            write_holds(folder, after)
    except (HoldsBroken, OSError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(EXIT_FAULT) from None


async def until_obeyed(
    mesh: Mesh, state: Path, places: Sequence[Place], *, is_held: bool
) -> set[Place]:
    """Wait until these say so in the status; those that do, in time."""
    limit = time.monotonic() + OBEYED_WITHIN_S
    while True:
        told = (await status_of(mesh, state)).told
        words = {place: place.state_in(told) for place in places}
        obeyed = {p for p, word in words.items() if (word in ("paused", "draining")) == is_held}
        # A node that does not run obeys when it does.
        running = {p for p, word in words.items() if word not in ("down", "stopped", "starting")}
        if running <= obeyed or time.monotonic() > limit:
            return obeyed & running
        await asyncio.sleep(POLL_S)
