"""`isthmus up FILE` and `isthmus down FILE`: run private brokers and a node for each site, and end
them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from federation.brokers.addresses import AddressError
from federation.brokers.credentials import CredentialsError
from federation.mesh import Mesh
from federation.mesh_file import MeshFileError, load_mesh
from federation.wording import counted
from isthmus.brokers.errors import LocalBrokerError
from isthmus.cluster_parts.parts import PartsMissing
from isthmus.commands.apply import apply as apply_file
from isthmus.commands.apply import possible_mesh_or_exit
from isthmus.completion import site_names
from isthmus.known.address_book import address_book, address_book_or_exit
from isthmus.options import (
    DEFAULT_STATE,
    EXIT_FAULT,
    MeshFile,
    RabbitMQFolder,
    StateFolder,
    exit_with,
    mesh_or_exit,
    site_or_exit,
)
from isthmus.status import status_of
from isthmus.up.announcements import (
    FileUnusable,
    NotTakenUp,
    check_file,
    running_mesh,
    until_nodes_ended,
)
from isthmus.up.mesh_children import PAGE, MeshChildren
from isthmus.up.own_brokers import OwnBrokers
from isthmus.up.resting import rest, rests, rouse
from isthmus.up.supervised import ANNOUNCED_PAGE
from isthmus.up.supervisor import ChildPlan, FileNotTakenUp, MeshTakenUp, Supervisor, end_supervisor
from isthmus.up.supervisor_record import AlreadySupervisedError, SupervisorRecord, read_record

log = logging.getLogger(__name__)

UP_WITHIN_S = 120.0
PAGE_WITHIN_S = 30.0
_UNUSABLE = LocalBrokerError, CredentialsError, AddressError, PartsMissing
"""Reasons why the processes of a mesh cannot be planned."""


def up(
    file: MeshFile,
    state: StateFolder = DEFAULT_STATE,
    rabbitmq: RabbitMQFolder = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return once everything runs.")
    ] = False,
    page: Annotated[
        bool, typer.Option("--page", help="Serve the mesh's page too, as `isthmus page` does.")
    ] = False,
    prepares: Annotated[bool, typer.Option("--prepare/--no-prepare", hidden=True)] = True,
) -> None:
    """Run the mesh on this machine: a private broker for each site that names none, and a node for
    every site, restarted when they die or hang. Ctrl-C or `isthmus down` ends them in order.

    Of a site with `nodes` all of them run here; where its `cluster:` names no servers, a private
    ZooKeeper and Cassandra too.

    At a site with a `broker` of its own the command does what `isthmus apply` does, if the site has
    a `management`; else it prints what to run there.

    Where the mesh runs already, `up --detach` does what `isthmus apply` does, and waits until
    everything runs that is not held back: processes of new sites are started, and nodes that were
    ended by `isthmus down --site`; of removed sites processes are ended, the rest goes on.
    """
    mesh = possible_mesh_or_exit(file, state)
    if detach:
        _detach(file, mesh, state, rabbitmq, has_page=page)
        return
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    children = MeshChildren(file, state, rabbitmq, has_page=page)
    try:
        asyncio.run(_supervise(file, children, mesh, state, prepares=prepares))
    except (*_UNUSABLE, AlreadySupervisedError) as error:
        exit_with(str(error), EXIT_FAULT)


async def _supervise(
    file: Path, children: MeshChildren, mesh: Mesh, state: Path, *, prepares: bool
) -> None:
    def taken_up(mesh: Mesh) -> MeshTakenUp:
        return MeshTakenUp(str(children.file), mesh.revision)

    def reload() -> tuple[list[ChildPlan], MeshTakenUp]:
        try:
            new = load_mesh(children.file)
            if new.name != mesh.name:
                raise FileNotTakenUp(f"it names the mesh {new.name!r}, here runs {mesh.name!r}")
            return children.plans(new), taken_up(new)
        except (*_UNUSABLE, MeshFileError, OSError) as error:
            raise FileNotTakenUp(str(error)) from error

    if running_mesh(state) is None:
        rouse(state, mesh.sites)
    supervisor = Supervisor(state, children.plans(mesh), about=taken_up(mesh), reload=reload)
    aside = [asyncio.create_task(_announce_when_running(file, mesh, state))]
    if prepares:
        own = OwnBrokers(file, address_book(mesh, state), state, _to_errors)
        aside.append(asyncio.create_task(own.prepare()))
    try:
        await supervisor.run_until_signalled()
    finally:
        for task in aside:
            task.cancel()


def _to_errors(text: str) -> None:
    typer.echo(text, err=True)


async def _announce_when_running(file: Path, mesh: Mesh, state: Path) -> None:
    began = time.monotonic()
    while not (report := await status_of(mesh, state)).is_settled:
        await asyncio.sleep(0.25)
    typer.echo(
        f"mesh {mesh.name}: {counted(len(mesh.sites), 'site')} up after "
        f"{time.monotonic() - began:.0f} s; `isthmus status {file}` shows them, Ctrl-C ends them",
        err=True,
    )
    for line in report.held_lines(file):
        typer.echo(f"warning: {line}", err=True)
    await _announce_page(state)


async def _announce_page(state: Path) -> None:
    """Print where the page is, if it is a child here, once it is known or after a limit."""
    limit = time.monotonic() + PAGE_WITHIN_S
    while (record := read_record(state)) and (child := record.child("page", PAGE)):
        try:
            announced = json.loads((state / ANNOUNCED_PAGE).read_text())
            if announced["pid"] == child.pid:
                address = f"http://127.0.0.1:{announced['admin_port']}/"
                typer.echo(f"the page is at {address}", err=True)
                return
        except (OSError, ValueError, KeyError, TypeError):
            pass  # not announced yet
        if time.monotonic() > limit:
            typer.echo(f"the page does not run: see {state / 'logs' / 'page.log'}", err=True)
            return
        await asyncio.sleep(0.25)


def _detach(file: Path, mesh: Mesh, state: Path, rabbitmq: Path | None, *, has_page: bool) -> None:
    if (record := running_mesh(state)) is not None:
        if has_page and record.child("page", PAGE) is None:
            exit_with(
                f"the mesh of {state} runs without a page: `isthmus page {file}` serves it beside,"
                " or `isthmus down` and `isthmus up --page` with the mesh",
                EXIT_FAULT,
            )
        _apply(file, mesh, state, record)
        asyncio.run(_until_running(file, mesh, state, lambda: None, record.pid))
        return
    # First, so that the supervisor finds the passwords made here.
    own = OwnBrokers(file, address_book_or_exit(mesh, state), state, _to_errors)
    (state / "logs").mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "isthmus", "up", str(file.absolute())]
    command += ["--state", str(state.absolute()), "--no-prepare"]
    if rabbitmq is not None:
        command += ["--rabbitmq", str(rabbitmq.absolute())]
    if has_page:
        command.append("--page")
    log_file = state / "logs" / "supervisor.log"
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )

    def last_words() -> str | None:
        return None if process.poll() is None else log_file.read_text().strip()

    async def run() -> None:
        # Here, since no person would read advice printed in the background.
        preparing = asyncio.create_task(own.prepare())
        try:
            await _until_running(file, mesh, state, last_words, process.pid)
            await _announce_page(state)
        finally:
            preparing.cancel()

    asyncio.run(run())


async def _until_running(
    file: Path, mesh: Mesh, state: Path, last_words: Callable[[], str | None], pid: int
) -> None:
    """Wait until everything runs; `last_words` of the supervisor `pid`, or None while running."""
    limit = time.monotonic() + UP_WITHIN_S
    shown = ""
    while True:
        if (output := last_words()) is not None:
            exit_with(output, EXIT_FAULT)
        record = read_record(state)
        report = await status_of(mesh, state)
        if record is not None and record.pid == pid and report.is_settled:
            sites, links = counted(len(mesh.sites), "site"), counted(len(mesh.links), "link")
            held = report.held_lines(file)
            typer.echo(f"mesh {mesh.name}: {sites} and {links} {'run' if not held else 'are up'}")
            for held_line in held:
                typer.echo(f"warning: {held_line}", err=True)
            return
        line = report.summary
        if line != shown:
            typer.echo(line, err=True)
            shown = line
        if time.monotonic() > limit:
            exit_with(f"not everything runs after {UP_WITHIN_S:.0f} s: {line}", EXIT_FAULT)
        await asyncio.sleep(0.25)


def down(
    file: MeshFile,
    site: Annotated[
        str | None,
        typer.Option(
            "--site",
            metavar="SITE",
            help="End the nodes of this site alone.",
            autocompletion=site_names,
        ),
    ] = None,
    state: StateFolder = DEFAULT_STATE,
) -> None:
    """End the mesh's nodes and private brokers on this machine, in order. Nothing is deleted.

    Without --site the processes to end are known from --state: the file may be wrong, or gone.

    With --site only the nodes of that site end, as `isthmus reslot` and `isthmus cluster` want:
    its broker goes on, and so does the rest of the mesh. The supervisor reads the file for that,
    and takes up whatever has changed there. `isthmus up --detach` starts the nodes again.
    """
    if site is not None:
        _end_nodes(file, site, state)
    elif asyncio.run(end_supervisor(state)):
        typer.echo(f"the mesh of {file} has ended; its messages are kept in {state}")
    else:
        typer.echo(f"nothing was running in {state}")


def _apply(file: Path, mesh: Mesh, state: Path, record: SupervisorRecord) -> None:
    """Apply the file, with all sites roused: their nodes start if the file is taken up."""
    resting = [site for site in mesh.sites if rests(state, site)]
    with ExitStack() as unless_applied:
        for site in resting:
            unless_applied.callback(rest, state, site)
        try:
            check_file(record, file, state)
        except NotTakenUp as error:
            exit_with(str(error), EXIT_FAULT)
        rouse(state, resting)
        apply_file(file, state=state)
        unless_applied.pop_all()


def _end_nodes(file: Path, site: str, state: Path) -> None:
    mesh = mesh_or_exit(file, [site])
    site_or_exit(file, mesh, site)
    record = running_mesh(state)
    if record is None:
        exit_with(f"`isthmus up` does not run in {state}: end the nodes where they run", EXIT_FAULT)
    rested = rests(state, site)
    try:
        check_file(record, file, state)
        rest(state, site)
        asyncio.run(until_nodes_ended(record, mesh, site, state))
    except FileUnusable as error:
        if not rested:
            rouse(state, [site])
        exit_with(f"the nodes of {site} go on: {error}", EXIT_FAULT)
    except (NotTakenUp, OSError) as error:
        again = f"`isthmus status {file}` shows what runs; `isthmus up {file} --detach` starts all"
        exit_with(f"the nodes of {site} may go on: {error}; {again}", EXIT_FAULT)
    typer.echo(
        f"the nodes of {site} on this machine have ended; `isthmus up {file} --detach` starts them"
        " again"
    )
