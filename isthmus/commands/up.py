"""`isthmus up FILE`: private brokers and a node a site, kept running."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from federation.credentials import CredentialsError, load_or_make
from federation.mesh import Mesh
from isthmus.address_book import address_book
from isthmus.broker_errors import LocalBrokerError
from isthmus.commands.apply import apply_sites
from isthmus.commands.relay import site_folder
from isthmus.local_brokers import LocalBroker
from isthmus.options import (
    DEFAULT_STATE,
    EXIT_FAULT,
    MeshFile,
    RabbitMQFolder,
    StateFolder,
    mesh_or_exit,
)
from isthmus.private_brokers import plan_brokers
from isthmus.rabbitmq_install import RabbitMQInstallation, find_installation
from isthmus.status_report import status_of
from isthmus.supervised import BrokerProcess, NodeProcess
from isthmus.supervisor import BROKER_POLICY, NODE_POLICY, Plan, Supervisor
from isthmus.supervisor_record import AlreadySupervisedError, read_record

log = logging.getLogger(__name__)

UP_WITHIN_S = 120.0


def up(
    file: MeshFile,
    state: StateFolder = DEFAULT_STATE,
    rabbitmq: RabbitMQFolder = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return once everything runs.")
    ] = False,
) -> None:
    """Run the mesh on this machine: a private broker for each site that names none, and a node
    for every site, restarted when they die or hang. Ctrl-C or `isthmus down` ends it in order.
    """
    mesh = mesh_or_exit(file)
    if detach:
        _detach(file, mesh, state, rabbitmq)
        return
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        installation = _installation(mesh, rabbitmq)
        asyncio.run(_supervise(file, mesh, state, installation))
    except (AlreadySupervisedError, LocalBrokerError, CredentialsError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(EXIT_FAULT) from None


class AppliedBroker(BrokerProcess):
    """A private broker that has what the mesh needs whenever it is said to be started."""

    def __init__(self, broker: LocalBroker, mesh: Mesh, state: Path) -> None:
        super().__init__(broker)
        self._mesh = mesh
        self._state = state

    async def start(self) -> None:
        await super().start()
        book = address_book(self._mesh, self._state)
        (report,) = await apply_sites(book, [self.name], self._state)
        if not report.ok:
            told = "; ".join(f"{item.kind} {item.name}: {item.detail}" for item in report.faults)
            logging.getLogger(__name__).warning(
                "%s: not as the mesh file says: %s", self.name, told
            )


def _installation(mesh: Mesh, folder: Path | None) -> RabbitMQInstallation | None:
    """Only needed if the mesh has a private broker."""
    if all(site.broker is not None for site in mesh.sites.values()):
        return None
    return find_installation(folder)


async def _supervise(
    file: Path, mesh: Mesh, state: Path, installation: RabbitMQInstallation | None
) -> None:
    state.mkdir(parents=True, exist_ok=True)
    specs = plan_brokers(mesh, state, load_or_make(state, mesh))
    plans: list[Plan] = []
    for spec in specs.values():
        assert installation is not None
        broker = LocalBroker(spec, installation, die_with_parent=True)
        plans.append(Plan(AppliedBroker(broker, mesh, state), BROKER_POLICY))
    for site in mesh.sites:
        command = [sys.executable, "-m", "isthmus", "relay", str(file.absolute())]
        command += ["--site", site, "--state", str(state.absolute())]
        node = NodeProcess(
            site,
            command,
            state / "logs" / f"{site}.log",
            site_folder(state, site) / "node.json",
        )
        plans.append(Plan(node, NODE_POLICY, ("broker", site) if site in specs else None))
    supervisor = Supervisor(state, plans)
    saying = asyncio.create_task(_say_when_running(file, mesh, state))
    try:
        await supervisor.run_until_signalled()
    finally:
        saying.cancel()


async def _say_when_running(file: Path, mesh: Mesh, state: Path) -> None:
    began = time.monotonic()
    while not (await status_of(mesh, state)).all_running:
        await asyncio.sleep(0.25)
    typer.echo(
        f"mesh {mesh.name}: {len(mesh.sites)} sites run after {time.monotonic() - began:.0f} s; "
        f"`isthmus status {file}` shows them, Ctrl-C ends them",
        err=True,
    )


def _detach(file: Path, mesh: Mesh, state: Path, rabbitmq: Path | None) -> None:
    state.mkdir(parents=True, exist_ok=True)
    (state / "logs").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "isthmus", "up", str(file.absolute())]
    command += ["--state", str(state.absolute())]
    if rabbitmq is not None:
        command += ["--rabbitmq", str(rabbitmq.absolute())]
    log_file = state / "logs" / "supervisor.log"
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    asyncio.run(_until_running(mesh, state, process, log_file))


async def _until_running(
    mesh: Mesh, state: Path, process: subprocess.Popen[bytes], log_file: Path
) -> None:
    limit = time.monotonic() + UP_WITHIN_S
    shown = ""
    while True:
        if process.poll() is not None:
            typer.echo(log_file.read_text().strip(), err=True)
            raise typer.Exit(EXIT_FAULT)
        record = read_record(state)
        report = await status_of(mesh, state)
        if record is not None and record.pid == process.pid and report.all_running:
            typer.echo(f"mesh {mesh.name}: {len(mesh.sites)} sites and {len(mesh.links)} links run")
            return
        line = report.summary
        if line != shown:
            typer.echo(line, err=True)
            shown = line
        if time.monotonic() > limit:
            typer.echo(f"not everything runs after {UP_WITHIN_S:.0f} s: {line}", err=True)
            raise typer.Exit(EXIT_FAULT)
        await asyncio.sleep(0.25)
