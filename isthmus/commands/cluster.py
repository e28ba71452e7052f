"""`isthmus cluster begin` and `end`: a site's state into a cluster of nodes, and back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dedup.store import StoreError
from federation.brokers.addresses import AddressError
from federation.mesh_file import PasswordMissing
from federation.wording import counted
from isthmus.completion import site_names
from isthmus.display import key_progress
from isthmus.known.address_book import address_book_or_exit
from isthmus.options import (
    DEFAULT_STATE,
    EXIT_FAULT,
    EXIT_USAGE,
    MeshFile,
    StateFolder,
    exit_with,
    exit_without_cluster_parts,
    mesh_or_exit,
    site_or_exit,
)
from relay.node.site_folder import MOVED, STATE, site_folder

if TYPE_CHECKING:
    from relay.cluster.moving import MoveAccess

REACHED_WITHIN_S = 30.0
_EVERY_KEYS = 100_000

cluster = typer.Typer(
    no_args_is_help=True, help="Move a site's state into a cluster of several nodes, or back."
)
Site = Annotated[
    str,
    typer.Option(
        "--site", help="The site, which has a `cluster:` in FILE.", autocompletion=site_names
    ),
]
Move = Callable[[Path, Sequence["MoveAccess"], Callable[[int], None]], Awaitable[int]]


@cluster.command()
def begin(file: MeshFile, site: Site, state: StateFolder = DEFAULT_STATE) -> None:
    """Move the state of a site with one node into the site's cluster.

    The node must have ended; the first of the site's nodes then goes on where it was. FILE has the
    site's `nodes:` and `cluster:` already. A move that is cut short is made again as a whole, and
    no node starts before. The folder stays as it was, marked as moved: the former node refuses to
    start. Exported ledger files stay where they are, and count in audits.

    Example: isthmus cluster begin mesh.yaml --site paris
    """
    from relay.cluster.moving import move_in

    keys = _move(file, site, state, move_in)
    typer.echo(f"{site}: {counted(keys, 'key')} moved; start its nodes: `isthmus relay --node`")


@cluster.command()
def end(file: MeshFile, site: Site, state: StateFolder = DEFAULT_STATE) -> None:
    """Move the state of a site's cluster into the folder of a site with one node.

    All nodes must have ended; none of them can take the site again afterwards. FILE has the site's
    `nodes:` and `cluster:` still; take them out when this is done.

    Example: isthmus cluster end mesh.yaml --site paris
    """
    from relay.cluster.moving import move_out

    keys = _move(file, site, state, move_out)
    typer.echo(
        f"{site}: {counted(keys, 'key')} moved; take `nodes:` and `cluster:` out of {file}, then"
        f" start its node: `isthmus relay {file} --site {site}`"
    )


def _move(file: Path, site: str, state: Path, move: Move) -> int:
    """Move the state; end the command if that is refused or fails."""
    mesh = mesh_or_exit(file, [site])
    site_or_exit(file, mesh, site)
    if mesh.sites[site].nodes is None:
        exit_with(f"{site} has no `cluster:` in {file}", EXIT_USAGE)
    book = address_book_or_exit(mesh, state)
    folder, slots = site_folder(state, site), mesh.sites[site].slots
    try:
        from relay.cluster.coordination import CoordinationAway, CoordinationRefused
        from relay.cluster.moving import (
            MoveRefused,
            check_move_in,
            move_access,
            move_in,
            until_connected,
        )
        from relay.cluster.site_servers import SharedServers, cluster_of
        from relay.node.process import only_process
        from relay.node.slot_record import check_slots, keep_slots, record_slots
        from relay.node.start import NodeStopped
    except ImportError as error:
        exit_without_cluster_parts(site, error)

    def waits(reason: str) -> None:
        typer.echo(f"{site}: {reason}", err=True)

    async def run() -> int:
        async with asyncio.timeout(REACHED_WITHIN_S) as reaching, AsyncExitStack() as connected:
            servers = SharedServers(cluster_of(book, site))
            connected.push_async_callback(servers.close)
            accesses = [await move_access(servers, slot, waits) for slot in range(slots.count)]
            await until_connected(servers)
            reaching.reschedule(None)
            if move is move_in:
                # Before slots are written down, which holds for ever.
                await check_move_in(folder, accesses)
            kept = await servers.kept_slots(slots, waits)
            check_slots(site, slots, kept, "the states in its cluster")
            return await move(folder, accesses, key_progress(site, _EVERY_KEYS))

    moved, reason = 0, ""
    try:
        with only_process(folder):
            if move is move_in or ((folder / STATE).exists() and not (folder / MOVED).exists()):
                keep_slots(folder, site, slots)
            else:
                # The folder may have a record of states that have moved on since.
                record_slots(folder, slots)
            moved = asyncio.run(run())
    except TimeoutError:
        reason = f"Cassandra or ZooKeeper does not answer within {REACHED_WITHIN_S:g} s"
    except (CoordinationAway, CoordinationRefused, MoveRefused, NodeStopped) as error:
        reason = str(error)
    except (StoreError, AddressError, PasswordMissing, OSError) as error:
        reason = str(error)
    if reason:
        exit_with(f"{site}: not moved: {reason}", EXIT_FAULT)
    return moved
