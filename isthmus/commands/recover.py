"""`isthmus recover FILE --site S`: rebuild the lost state of a site."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dedup.store import StoreError
from federation.brokers.addresses import AddressBook, AddressError
from federation.mesh import Mesh
from federation.mesh_file import PasswordMissing
from federation.names import Names
from federation.slots import SlotMap
from federation.wording import counted
from isthmus.completion import site_names
from isthmus.display import key_progress
from isthmus.known.address_book import address_book_or_exit
from isthmus.options import (
    DEFAULT_STATE,
    EXIT_FAULT,
    EXIT_USAGE,
    MeshFile,
    PreviousFormats,
    StateFolder,
    exit_with,
    exit_without_cluster_parts,
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
    from relay.node.recovery import LostSlot, Recovered

WITHIN_S = 3600.0
REACHED_WITHIN_S = 10.0
SERVERS_WITHIN_S = 30.0
_EVERY_KEYS = 100_000
_EXPECTED = (
    *(StoreError, SiteLogError, NodeStopped),
    *(AddressError, PasswordMissing, TimeoutError),
)


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
    """Rebuild a site's state from its log, after the state was lost or an old copy put back.

    Messages delivered up to the mark in the broker are not delivered again; those past the mark
    are, flagged `x-mesh-redelivered`. The former folder is kept beside the new one. The site's
    broker must run, its node must not: a node that has lost its state has stopped by itself.
    `isthmus up` starts the node as soon as the recovery is done. A node that stopped at a gap in
    its log has not lost its state: see `isthmus accept-gap`.

    Of a site with a `cluster:` the state is in the journal that its nodes share, and goes into a
    new one once the journal is lost, in part or whole; all its nodes must have ended. A journal
    that a node would go on with is left alone. Run the command on the machine of a node.

    Example: isthmus recover mesh.yaml --site paris
    """
    mesh = mesh_or_exit(file, [site])
    site_or_exit(file, mesh, site)
    number = _slot_or_exit(site, mesh.sites[site].slots, slot)
    is_shared = mesh.sites[site].nodes is not None
    if not is_shared:
        _check_folder_or_exit(file, site_folder(state, site), site, number)
    elif (site_folder(state, site) / STATE).exists() and not (
        site_folder(state, site) / MOVED
    ).exists():
        exit_with(
            f"not recovered: the state of {site} is in the folder of its one node:"
            " `isthmus cluster begin` moves it into the cluster",
            EXIT_FAULT,
        )
    book = address_book_or_exit(mesh, state)

    from relay.batches.known_formats import KNOWN, as_before
    from relay.cluster.coordination import CoordinationAway, CoordinationRefused
    from relay.cluster.moving import MoveRefused
    from relay.node.recovery import LostSlot
    from relay.node.recovery import recover as recover_folder

    lost = LostSlot(site, book, number, as_before() if previous_formats else KNOWN)

    async def run() -> Recovered:
        # Before a former folder is put aside: recovery would wait for an absent broker.
        await _reach_log(book, site, number)
        async with asyncio.timeout(WITHIN_S):
            typer.echo(f"reading the log of {site} ...", err=True)
            if is_shared:
                return await _recover_shared(lost, site_folder(state, site))
            return await recover_folder(lost, slot_folder(site_folder(state, site), number))

    try:
        found = asyncio.run(run())
    except (*_EXPECTED, MoveRefused, CoordinationAway, CoordinationRefused, OSError) as error:
        exit_with(f"not recovered: {str(error) or 'no answer in time'}", EXIT_FAULT)
    typer.echo(
        f"{site}: {counted(found.batches, 'batch', plural='batches')} in the log; "
        f"{counted(found.settled_messages, 'message')} already delivered, "
        f"{found.doubtful_messages} will be delivered flagged"
    )
    if found.gone:
        typer.echo(
            f"{site}: of {counted(len(found.gone), 'large message')} already delivered the content"
            " is gone: a further copy of such a message would not be recognised"
        )
    _say_who_starts(file, mesh, state, site)


async def _recover_shared(lost: LostSlot, folder: Path) -> Recovered:
    """Recover a slot's state into the journal that the site's nodes share. Raises as
    `SharedRecovery.run`, and CoordinationRefused.
    """
    site, slots = lost.site, lost.book.mesh.sites[lost.site].slots
    try:
        from relay.cluster.moving import move_access, until_connected
        from relay.cluster.shared_recovery import SharedRecovery
        from relay.cluster.site_servers import SharedServers, cluster_of
    except ImportError as error:
        exit_without_cluster_parts(site, error)
    from relay.content.contents import MARGIN_S, Contents
    from relay.node.process import only_process
    from relay.node.slot_record import check_slots

    def waits(reason: str) -> None:
        typer.echo(f"{site}: {reason}", err=True)

    servers = SharedServers(cluster_of(lost.book, site))
    with only_process(folder):
        try:
            async with asyncio.timeout(SERVERS_WITHIN_S):
                access = await move_access(servers, lost.slot, waits)
                await until_connected(servers)
            recorded = await servers.recorded_slots(waits)
            check_slots(site, slots, recorded or slots, "the states in its cluster")
            store = servers.content(lambda: lost.book.mesh.retention_s + MARGIN_S)
            shared = replace(lost, contents=Contents(store, random.random))
            recovery = SharedRecovery(
                shared, access, folder, lambda: servers.record_slots(slots, slots, waits)
            )
            found = await recovery.run(key_progress(site, _EVERY_KEYS))
        finally:
            await servers.close()
    return found


def _check_folder_or_exit(file: Path, folder: Path, site: str, slot: int) -> None:
    """End the command if the state in the site's folder is not to be made anew."""
    if (folder / MOVED).exists():
        exit_with(
            f"not recovered: the state of {site} has moved into a cluster, and is not lost:"
            " `isthmus cluster end` brings it back",
            EXIT_FAULT,
        )
    if (folder / RESLOT).exists():
        exit_with(
            f"not recovered: a change of the slots of {site} was cut short: {RUN_AGAIN}", EXIT_FAULT
        )
    if _is_only_a_gap(slot_folder(folder, slot)):
        exit_with(
            f"not recovered: {site} stands at a gap in its log, and its state is not lost: "
            f"`isthmus accept-gap {file} {site}` has it go on with what there is",
            EXIT_FAULT,
        )


def _say_who_starts(file: Path, mesh: Mesh, state: Path, site: str) -> None:
    """Have the supervisor start the site's nodes, if it runs; else say who does."""
    supervisor = read_record(state)
    if supervisor is not None and supervisor.is_alive and supervisor.has_node(site, mesh.sites):
        supervisor.mark.send(signal.SIGHUP)
        typer.echo(f"{site}: its supervisor starts the node again")
    elif mesh.sites[site].nodes is not None:
        typer.echo(f"{site}: start its nodes again: `isthmus relay --node`")
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
