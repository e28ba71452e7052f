"""`isthmus recover FILE --site S`: rebuild the lost state folder of a node."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dedup.store import StoreError
from federation.brokers.addresses import AddressBook, AddressError
from federation.mesh_file import PasswordMissing
from federation.names import Names
from federation.slots import SlotMap
from federation.wording import counted
from isthmus.completion import site_names
from isthmus.known.address_book import address_book_or_exit
from isthmus.options import (
    DEFAULT_STATE,
    EXIT_FAULT,
    EXIT_USAGE,
    MeshFile,
    PreviousFormats,
    StateFolder,
    exit_with,
    mesh_or_exit,
    site_or_exit,
)
from isthmus.up.supervisor_record import read_record
from relay.log.rabbit.rabbit_log import open_rabbit_log
from relay.log.site_log import LogMissing, SiteLogError
from relay.node.site_folder import MOVED, RESLOT, STATE, site_folder, slot_folder
from relay.node.slot_record import RUN_AGAIN
from relay.node.start import NodeStopped

if TYPE_CHECKING:
    from relay.node.recovery import Recovered

WITHIN_S = 3600.0
REACHED_WITHIN_S = 10.0
_EXPECTED = (StoreError, SiteLogError, NodeStopped, AddressError, PasswordMissing)


def recover(
    file: MeshFile,
    site: Annotated[
        str, typer.Option("--site", help="The site whose state is lost.", autocompletion=site_names)
    ],
    slot: Annotated[
        int | None,
        typer.Option("--slot", help="At a site with `slots`: the slot whose state is lost."),
    ] = None,
    state: StateFolder = DEFAULT_STATE,
    previous_formats: PreviousFormats = False,
) -> None:
    """Rebuild a site's state from its log, after the folder was lost or an old copy put back.

    Messages delivered up to the mark in the broker are not delivered again; those past the mark
    are, flagged `x-mesh-redelivered`. The former folder is kept beside the new one. The site's
    broker must run, its node must not: a node that has lost its state has stopped by itself.
    `isthmus up` starts the node as soon as the recovery is done. A node that stopped at a gap in
    its log has not lost its state: see `isthmus accept-gap`.
    """
    mesh = mesh_or_exit(file, [site])
    site_or_exit(file, mesh, site)
    if mesh.sites[site].nodes is not None:
        exit_with(
            f"not recovered: the state of {site} is in the journal that its nodes share; a node "
            "that has lost its folder reads the journal when it starts",
            EXIT_FAULT,
        )
    if (site_folder(state, site) / MOVED).exists():
        exit_with(
            f"not recovered: the state of {site} has moved into a cluster, and is not lost:"
            " `isthmus cluster end` brings it back",
            EXIT_FAULT,
        )
    if (site_folder(state, site) / RESLOT).exists():
        exit_with(
            f"not recovered: a change of the slots of {site} was cut short: {RUN_AGAIN}", EXIT_FAULT
        )
    number = _slot_or_exit(site, mesh.sites[site].slots, slot)
    folder = slot_folder(site_folder(state, site), number)
    if _is_only_a_gap(folder):
        exit_with(
            f"not recovered: {site} stands at a gap in its log, and its state is not lost: "
            f"`isthmus accept-gap {file} {site}` has it go on with what there is",
            EXIT_FAULT,
        )
    book = address_book_or_exit(mesh, state)

    async def run() -> Recovered:
        from relay.batches.known_formats import KNOWN, as_before
        from relay.node.recovery import LostSlot
        from relay.node.recovery import recover as recover_folder

        formats = as_before() if previous_formats else KNOWN

        # Before the former folder is put aside: recovery would wait for an absent broker.
        await _reach_log(book, site, number)
        typer.echo(f"reading the log of {site} ...", err=True)
        async with asyncio.timeout(WITHIN_S):
            return await recover_folder(LostSlot(site, book, number, formats), folder)

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
        exit_with(f"not recovered: {str(error) or 'no answer from the broker'}", EXIT_FAULT)
    typer.echo(
        f"{site}: {counted(found.batches, 'batch', plural='batches')} in the log; "
        f"{counted(found.settled_messages, 'message')} already delivered, "
        f"{found.doubtful_messages} will be delivered flagged"
    )
    supervisor = read_record(state)
    if supervisor is not None and supervisor.is_alive and supervisor.child("node", site):
        supervisor.mark.send(signal.SIGHUP)
        typer.echo(f"{site}: its supervisor starts the node again")
    else:
        typer.echo(f"{site}: start its node again: `isthmus relay {file} --site {site}`")


def _slot_or_exit(site: str, slots: SlotMap, slot: int | None) -> int:
    """Return the slot to recover; end the command if the site has no such slot, or several."""
    if slot is None and slots.is_whole:
        return 0
    if slot is None or not 0 <= slot < slots.count:
        exit_with(f"{site} has slots 0 to {slots.count - 1}: say one of them by --slot", EXIT_USAGE)
    return slot


def _is_only_a_gap(folder: Path) -> bool:
    """True if the folder's node stopped at a gap, and at nothing else."""
    try:
        stopped = str(json.loads((folder / "node.json").read_text()).get("stopped", ""))
    except (OSError, ValueError, AttributeError):
        return False
    return (folder / STATE).exists() and stopped.startswith("gap:")


async def _reach_log(book: AddressBook, site: str, slot: int) -> None:
    """Check that the site's log can be read. Raises SiteLogError; a missing log is left to the
    recovery.
    """
    names = Names(book.mesh.name, slot)
    with contextlib.suppress(LogMissing):
        log = await open_rabbit_log(
            book.stream(site),
            names.log,
            mark_name=names.deliverer_mark,
            name="isthmus recover",
            deadline_s=REACHED_WITHIN_S,
        )
        await log.close()
