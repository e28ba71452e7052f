"""`isthmus relay FILE --site S`: run a site's node in the foreground."""

from __future__ import annotations

import gc
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import uvloop

from dedup.journal.lean_driver import import_driver
from dedup.store import StoreLocked
from federation.brokers.addresses import AddressError
from federation.brokers.broker_uri import is_loopback, parse_admin
from federation.mesh import LOCAL_ADMIN, Mesh
from federation.mesh_file import PasswordMissing
from isthmus.completion import site_names
from isthmus.known.address_book import MeshOnDisk, address_book_or_exit
from isthmus.known.known_meshes import mesh_or_last
from isthmus.log_events import JsonLines
from isthmus.options import (
    DEFAULT_STATE,
    EXIT_FAULT,
    EXIT_STOPPED,
    EXIT_USAGE,
    MeshFile,
    PreviousFormats,
    StateFolder,
    exit_with,
    exit_without_cluster_parts,
    site_or_exit,
)
from relay.node.site_folder import MOVED, STATE, node_folder, site_folder, slot_folder, slot_folders

if TYPE_CHECKING:
    from federation.brokers.addresses import AddressBook
    from relay.admin.access import AdminAfar
    from relay.cluster.node_in_cluster import NodeInCluster
    from relay.links.uplink import Uplink

_LOOPBACK = "127.0.0.1"
LEDGER_WRITER_LINGERS_S = 20.0
"""Seconds that the ledger writer lingers: a process's sites roll their ledgers some seconds apart,
and one writer process serves all.
"""


def relay(
    file: MeshFile,
    site: Annotated[
        list[str],
        typer.Option(
            "--site",
            help="The site to serve; several share the process.",
            autocompletion=site_names,
        ),
    ],
    state: StateFolder = DEFAULT_STATE,
    node: Annotated[
        str,
        typer.Option(
            "--node",
            help="This node's name, for a site with a `cluster`.",
            show_default="the host's name",
        ),
    ] = "",
    admin_port: Annotated[
        int | None,
        typer.Option("--admin-port", help="Port of health and status; 0: any.", show_default=False),
    ] = None,
    admin_host: Annotated[
        str | None,
        typer.Option(
            "--admin-host",
            help="Instead of the host of `admin:`, listen there: an address of this machine.",
            show_default=False,
        ),
    ] = None,
    previous_formats: PreviousFormats = False,
) -> None:
    """Serve one or more sites until SIGTERM.

    A changed mesh file is taken up within seconds, or at once at SIGHUP; a wrong file is not, and
    `isthmus status` shows why. Health, status and metrics are served on loopback, and at the site's
    `admin:` address: elsewhere only over TLS and with the token.

    Each node of a site with a `cluster:` is started so, with a name of its own: one runs the site,
    and another goes on when that one ends.

    Exit status 0 after a clean end, 1 when a stage failed while its site was to end (another start
    goes on from there), 3 when a site stopped for a reason that no restart mends (its state folder
    is lost, or a newer version wrote its log or its state): the reason is on standard error and in
    `isthmus status`.

    OTEL_TRACES_EXPORTER=otlp in the environment turns traces on, with `isthmus[otel]` installed.
    """
    from relay.admin.access import AdminUnavailable
    from relay.batches.known_formats import KNOWN, as_before
    from relay.ledger.file_writer import FileWriters
    from relay.links.uplink import Uplink
    from relay.node.machine import give_back_big_blocks
    from relay.node.node import SiteNode
    from relay.node.process import RelayProcess
    from relay.node.slot_place import SlotPlace
    from relay.node.slot_record import keep_slots
    from relay.node.start import NodeStopped
    from relay.tracing.switch import export_of

    names = list(dict.fromkeys(site))
    mesh = mesh_or_last(file, names, [site_folder(state, name) for name in names])
    site_or_exit(file, mesh, *names)
    places = [_place_of(mesh, name, node, state) for name in names]
    book = address_book_or_exit(mesh, state)
    admin = _admin_of(mesh, places, admin_host, admin_port)
    _log_to_stderr()
    export = export_of(mesh.name, os.environ)
    trace = None if export is None else export.batches
    trace_counts: Callable[[], Mapping[str, int]] = dict if export is None else export.counts
    if trace is not None:
        _log_to_stderr(trace.trace_id_of)
    give_back_big_blocks()
    _collect_seldom()

    def check() -> None:
        for site, _, folder in places:
            if mesh.sites[site].nodes is None:
                keep_slots(folder, site, mesh.sites[site].slots)

    async def run() -> RelayProcess:
        formats = as_before() if previous_formats else KNOWN
        writers = FileWriters(LEDGER_WRITER_LINGERS_S)
        nodes = []
        async with AsyncExitStack() as connected:
            for site, node, folder in places:
                uplink = Uplink(time.monotonic)
                slots = book.mesh.sites[site].slots
                shared = _in_cluster(book, site, node, folder, uplink)
                if shared is not None:
                    connected.push_async_callback(shared.aclose)
                for slot in range(slots.count):
                    place = SlotPlace(slot, folder, uplink, trace)
                    own = slot_folder(folder, slot)
                    brokers = None if shared is None else shared.brokers(slot)
                    machine = None if shared is None else shared.machine(slot)
                    slot_node = SiteNode(site, book, own, formats, writers, brokers, machine, place)
                    nodes.append(slot_node)
                if shared is not None:
                    shared.follow(slot_node)
            process = RelayProcess(
                nodes, MeshOnDisk(file, state), *admin, writers, check, trace_counts
            )
            await process.run()
        return process

    try:
        process = uvloop.run(run())
    except (AddressError, PasswordMissing, AdminUnavailable, StoreLocked) as error:
        exit_with(str(error), EXIT_FAULT)
    except NodeStopped as error:
        exit_with(str(error), EXIT_STOPPED)
    finally:
        if export is not None:
            export.close()
    for name, reason in {**process.stopped, **process.ended_badly}.items():
        typer.echo(f"{name}: {reason}", err=True)
    if process.stopped:
        raise typer.Exit(EXIT_STOPPED)
    if process.ended_badly:
        raise typer.Exit(EXIT_FAULT)


def _place_of(mesh: Mesh, site: str, node: str, state: Path) -> tuple[str, str, Path]:
    """Return a site, the name of its node here, and the node's folder."""
    group = mesh.sites[site].nodes
    if group is None:
        if node:
            exit_with(f"{site} has one node, without a name: it has no `cluster:`", EXIT_USAGE)
        folder = site_folder(state, site)
        if any((one / MOVED).exists() for one in slot_folders(folder)):
            exit_with(
                f"{site}: its state has moved into a cluster: `isthmus cluster end` brings it back,"
                " with a file that has the site's `cluster:`",
                EXIT_STOPPED,
            )
        return site, "", folder
    name = node or socket.gethostname()
    if group.names and name not in group.names:
        exit_with(f"{site} has no node {name!r}: `nodes:` has {', '.join(group.names)}", EXIT_USAGE)
    folder = site_folder(state, site)
    if any((one / STATE).exists() and not (one / MOVED).exists() for one in slot_folders(folder)):
        exit_with(
            f"{site}: the state of its one node is in {folder / STATE}: `isthmus cluster begin"
            f" FILE --site {site}` moves it into the cluster",
            EXIT_STOPPED,
        )
    return site, name, node_folder(state, site, name)


def _in_cluster(
    book: AddressBook, site: str, node: str, folder: Path, uplink: Uplink
) -> NodeInCluster | None:
    """Return the node as one of a site with a cluster; None at other sites."""
    if book.mesh.sites[site].nodes is None:
        return None
    try:
        import_driver()
        from relay.cluster.node_in_cluster import NodeInCluster
    except ImportError as error:
        exit_without_cluster_parts(site, error)
    return NodeInCluster(book, site, node, folder, uplink)


def _admin_of(
    mesh: Mesh, places: list[tuple[str, str, Path]], host: str | None, port: int | None
) -> tuple[int, str, AdminAfar | None]:
    """Return the one admin address of the sites' process: port and host on loopback, and a remote
    address. `places` are those of the sites' nodes here; `host` and `port` are the command's
    options.
    """
    from relay.admin.access import AdminAfar

    addresses = {
        (mesh.sites[site].admin_of(node), mesh.sites[site].admin_access) for site, node, _ in places
    }
    addresses.discard((None, LOCAL_ADMIN))
    if len(addresses) > 1:
        exit_with(f"sites of one process have one `admin:`, not {len(addresses)}", EXIT_USAGE)
    for address, access in addresses:
        where = parse_admin(str(address))
        if not where.tls and not is_loopback(where.host) and host is None:
            # Only a mesh from before this check, still in use because the file is wrong now:
            # messages must not wait for a line about status.
            typer.echo(
                f"warning: admin: {address} is in clear and not loopback: nobody is answered there;"
                " see `isthmus validate`",
                err=True,
            )
            return (where.port if port is None else port), _LOOPBACK, None
        if not where.tls:
            return (where.port if port is None else port), host or where.host, None
        if access.tls.certificate:
            files = access.tls.certificate, access.tls.key
            reached = host or where.host, (where.port if port is None else port)
            return 0, _LOOPBACK, AdminAfar(*reached, *files, access.token, os.environ)
        # A proxy listens at the address and reaches the node on loopback.
    return port or 0, host or _LOOPBACK, None


def _collect_seldom() -> None:
    """Make garbage collection rarer and limited to new objects: hundreds of objects a batch come
    and go without cycles, and imported modules stay.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def _log_to_stderr(trace_id_of: Callable[[str], str] | None = None) -> None:
    """Log to standard error from now on; `trace_id_of` as for `JsonLines`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
        if sys.stderr.isatty()
        else JsonLines(trace_id_of)
    )
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
