"""`isthmus recover FILE --site S`: a new state folder for a node that has lost its own."""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated

import typer

from dedup.store import StoreError
from federation.brokers.addresses import AddressError
from federation.counted import counted
from federation.mesh_file import PasswordMissing
from isthmus.address_book import address_book_or_exit
from isthmus.commands.relay import site_folder
from isthmus.options import (
    DEFAULT_STATE,
    EXIT_FAULT,
    MeshFile,
    StateFolder,
    mesh_or_exit,
    site_or_exit,
)
from isthmus.supervisor_record import read_record
from relay.log.site_log import SiteLogError
from relay.node.recovery import Recovered
from relay.node.start import NodeStopped

WITHIN_S = 3600.0


def recover(
    file: MeshFile,
    site: Annotated[str, typer.Option("--site", help="The site whose state is lost.")],
    state: StateFolder = DEFAULT_STATE,
) -> None:
    """Rebuild a site's state from its log, after the folder was lost or an old copy put back.

    What was delivered up to the mark in the broker is not delivered again; what lies past it is,
    flagged `x-mesh-redelivered`. The former folder is kept beside the new one. The site's broker
    must run, its node must not: one that has lost its state has stopped by itself. `isthmus up`
    takes it up again as soon as this is done.
    """
    mesh = mesh_or_exit(file, [site])
    site_or_exit(file, mesh, site)
    book = address_book_or_exit(mesh, state)

    async def run() -> Recovered:
        from relay.node.node import SiteNode

        typer.echo(f"reading the log of {site} ...", err=True)
        async with asyncio.timeout(WITHIN_S):
            return await SiteNode(site, book, site_folder(state, site)).recover()

    try:
        found = asyncio.run(run())
    except (
        StoreError,
        SiteLogError,
        NodeStopped,
        AddressError,
        PasswordMissing,
        TimeoutError,
    ) as error:
        typer.echo(f"not recovered: {str(error) or 'no answer from the broker'}", err=True)
        raise typer.Exit(EXIT_FAULT) from None
    typer.echo(
        f"{site}: {counted(found.batches, 'batch', plural='batches')} in the log; "
        f"{counted(found.settled_messages, 'message')} known to be delivered, "
        f"{found.doubtful_messages:,} to be delivered flagged"
    )
    supervisor = read_record(state)
    if supervisor is not None and supervisor.is_alive and supervisor.child("node", site):
        supervisor.mark.send(signal.SIGHUP)
        typer.echo(f"{site}: its supervisor starts the node again")
    else:
        typer.echo(f"{site}: start its node again: `isthmus relay {file} --site {site}`")
