"""Several sites' nodes in one process: one event loop, one admin port, one end.

A site that stops with a reason does not end the others; the process ends when all have ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

from aiohttp import web

from dedup.store import StoreError, StoreLocked
from federation import durable_file
from federation.brokers.addresses import AddressBook, AddressError
from federation.brokers.credentials import PasswordMissing
from federation.certificate_files import CertificateExpiry
from federation.signing_keys import PrivateKeyUnusable
from relay.admin.access import AdminAfar
from relay.admin.admin import LOOPBACK, Admin
from relay.admin.operator_routes import (
    MendedSite,
    MendingRoutes,
    RepairedSite,
    RepairRoutes,
    write_token,
)
from relay.admin.slot_routes import SlotRoutes
from relay.ledger.file_writer import FileWriters
from relay.node.machine import GivingRefused
from relay.node.measurements import measured
from relay.node.mesh_watch import MeshFiles, MeshWatch
from relay.node.node import SiteNode
from relay.node.report import link_reports, site_report
from relay.node.site_folder import ANNOUNCED, STANDBY
from relay.node.site_slots import (
    MendingOfSlots,
    SiteOfSlots,
    links_of_slots,
    node_of_slots,
)
from relay.node.stage_order import EndedBadly
from relay.node.start import NodeStopped
from relay.node.watch import CallbackWatch
from relay.state.node_state import StateError

log = logging.getLogger(__name__)

_ENDS_A_SITE = (
    *(NodeStopped, StateError, StoreError),
    *(AddressError, PasswordMissing, PrivateKeyUnusable),
)
"""Errors that only a person can mend; the other sites of the process go on."""
STARTING_AT_ONCE = 4
"""Sites of a process that start at the same time: a start takes ten connections and a look through
the log, and a broker asked by hundreds of sites at once answers none of them.
"""
AGAIN_S = 1.0
"""Wait before a node begins again by itself."""
TURN_S = 10.0
"""Time after which a starting site lets the next one begin to start beside it."""


class RelayProcess:
    """Runs nodes until SIGTERM or SIGINT; SIGHUP has the mesh file read at once. After `run`,
    `stopped` and `ended_badly` are empty if the end was a clean one.
    """

    def __init__(
        self,
        nodes: Sequence[SiteNode],
        files: MeshFiles | None = None,
        admin_port: int = 0,
        admin_host: str = LOOPBACK,
        admin_afar: AdminAfar | None = None,
        ledger_writers: FileWriters | None = None,
        check: Callable[[], None] = lambda: None,
        trace_counts: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        """`files` are watched for a changed mesh, if given. The admin port (0: a free one) is open
        at loopback addresses, and at `admin_afar` for other machines. `ledger_writers` are shared
        by the nodes and closed in the end. `check` raises NodeStopped if the folders, which are
        this process's by then, are not to be used. `trace_counts` are figures for metrics.
        """
        self._check = check
        self._trace_counts = trace_counts
        self._ledger_writers = ledger_writers or FileWriters()
        self._nodes = nodes
        self._watch = None if files is None else MeshWatch(files, self._take_up, self._refuse)
        self._mending = MendingRoutes(self._mending_of)
        self._repair = RepairRoutes(self._stages_of, self._mending.token)
        self._slots = SlotRoutes(self._give, self._mending.token)
        self._admin = Admin(
            self.report, admin_host, admin_port, self._add_routes, admin_afar, self.measurements
        )
        self._certificates = CertificateExpiry()
        self._is_stopping = False
        self.stopped: dict[str, str] = {}
        """Site, or slot of a site -> reason why it stopped by itself; no restart helps."""
        self.ended_badly: dict[str, str] = {}
        """Site, or slot of a site -> failure while it was ending; another start helps."""
        self._group: asyncio.TaskGroup | None = None
        self._book: AddressBook | None = None
        self._starting = asyncio.Semaphore(STARTING_AT_ONCE)
        self._manager = ServiceManager(os.environ, os.getpid(), self._summary)

    async def run(self) -> None:
        """Run until all nodes have ended. Raises StoreLocked if another process serves one of the
        sites.
        """
        with ExitStack() as held:
            for node in self._nodes:
                held.enter_context(only_process(node.folder))
            self._check()
            await self._run_alone()

    async def _run_alone(self) -> None:
        loop = asyncio.get_running_loop()
        callbacks = CallbackWatch(loop)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        if self._watch is not None:
            loop.add_signal_handler(signal.SIGHUP, self._watch.look_now)
        port = await self._admin.start()
        for node in self._nodes:
            _announce(node.folder, port)
            write_token(node.folder, self._mending.token)
        notifying = asyncio.create_task(self._manager.run(), name="service manager")
        try:
            async with asyncio.TaskGroup() as watching:
                # A failure of either ends the process, which then begins anew: it would miss
                # changes of the file, or work that a failed callback has left undone.
                aside = (
                    watching.create_task(self._look_for_changes(), name="mesh file"),
                    watching.create_task(callbacks.run(), name="callbacks"),
                )
                try:
                    async with asyncio.TaskGroup() as self._group:
                        for node in self._nodes:
                            self._group.create_task(self._run_node(node), name=node.label)
                finally:
                    for task in aside:
                        task.cancel()
        finally:
            notifying.cancel()
            await self._ledger_writers.close()
            self._manager.close()
            await self._admin.close()

    def stop(self) -> None:
        """End every node in order."""
        self._is_stopping = True
        self._manager.stopping()
        for node in self._nodes:
            node.stop()

    def report(self) -> dict[str, Any]:
        """Content of /status."""
        return {
            "pid": os.getpid(),
            "mesh": self._nodes[0].mesh.name,
            "revision": self._nodes[0].mesh.revision,
            "sites": {site: _site(nodes) for site, nodes in self._by_site().items()},
            "links": [link for nodes in self._by_site().values() for link in _links(nodes)],
        }

    def measurements(self) -> dict[str, Any]:
        """Content of /metrics, before it is text."""
        figures = measured(self.report(), self._by_site(), self._certificates)
        return {**figures, **self._trace_counts()}

    def _by_site(self) -> dict[str, list[SiteNode]]:
        """Nodes of each site's slots, in order."""
        found: dict[str, list[SiteNode]] = {}
        for node in self._nodes:
            found.setdefault(node.site, []).append(node)
        return found

    def _summary(self) -> str:
        sites = self.report()["sites"]
        return "; ".join(
            f"{name} {site['state']}" + (f": {site['reason']}" if site["reason"] else "")
            for name, site in sites.items()
        )

    def _add_routes(self, app: web.Application) -> None:
        self._mending.add_to(app)
        self._repair.add_to(app)
        self._slots.add_to(app)

    async def _give(self, site: str, slot: int, to: str) -> str:
        """Have another node take a slot; return the reason if that cannot be."""
        nodes = dict(enumerate(self._by_site()[site]))
        give_to = nodes[slot].give_to
        if nodes[slot].mesh.sites[site].nodes is None:
            return f"{site} has one node: `cluster:` lets it have several"
        if give_to is None:
            return f"slot {slot} does not run at this node"
        try:
            await give_to(to)
        except GivingRefused as error:
            return str(error)
        return ""

    def _stages_of(self, site: str) -> RepairedSite | None:
        nodes = self._by_site()[site]
        running = {n: node.stages for n, node in enumerate(nodes) if node.stages is not None}
        if _is_starting(nodes):
            return None
        slots = nodes[0].mesh.sites[site].slots
        return running[0] if slots.is_whole else SiteOfSlots(running, slots)

    def _mending_of(self, site: str) -> MendedSite | None:
        nodes = self._by_site()[site]
        running = [node.stages.mending for node in nodes if node.stages is not None]
        if _is_starting(nodes):
            return None
        return running[0] if len(nodes) == 1 else MendingOfSlots(running)

    async def _look_for_changes(self) -> None:
        if self._watch is not None:
            await self._watch.run()

    def _take_up(self, book: AddressBook) -> None:
        self._book = book
        failures = []
        for node in self._nodes:
            try:
                node.take_up(book)
            except OSError as error:
                node.file_problem = str(error)
                failures.append(error)
            else:
                self._begin_again_if_back(node)
        if failures:
            raise failures[0]

    def _begin_again_if_back(self, node: SiteNode) -> None:
        """Start the node of a site again that was taken out of the file and put back meanwhile."""
        book = self._book
        if book is None or self._group is None or node.site not in book.mesh.sites:
            return
        if self._is_stopping:
            return  # nobody would stop the node
        if node.was_taken_out and self.stopped.pop(node.label, ""):
            log.info(
                "%s: is in the mesh file again",
                node.site,
                extra={"event": "site-back-in-file", "site": node.site},
            )
            node.put_back(book)
            self._group.create_task(self._run_node(node), name=node.label)

    def _refuse(self, problem: str) -> None:
        """Note the mistake in the file; every node goes on with its present mesh."""
        for node in self._nodes:
            if node.file_problem != problem:
                log.error(
                    "%s: the mesh file is not taken up: %s",
                    node.site,
                    problem,
                    extra={"event": "mesh-file-refused", "site": node.site},
                )
            node.file_problem = problem

    async def _run_node(self, node: SiteNode) -> None:
        while not await self._has_ended(node):
            await asyncio.sleep(AGAIN_S)

    async def _has_ended(self, node: SiteNode) -> bool:
        """Run a node until it ends. Return False if it is to begin again by itself: other slots
        of its site, and other nodes, go on beside.
        """
        try:
            await self._run_in_turn(node)
        except StoreLocked:
            raise  # the former process is about to end: the supervisor tries again
        except _ENDS_A_SITE as error:
            log.error(
                "%s: stopped: %s",
                node.label,
                error,
                extra={"event": "site-stopped", "site": node.site},
            )
            self.stopped[node.label] = str(error)
            self._announce_end(node, str(error))
            # A person mends a site as a whole, whose process then begins anew.
            for slot in self._by_site()[node.site]:
                slot.stop()
            self._begin_again_if_back(node)
        except EndedBadly as error:
            if not node.is_to_end and node.copy_report is not None:
                log.error(
                    "%s: %s", node.label, error, extra={"event": "node-failed", "site": node.site}
                )
                return False
            if not node.is_to_end:
                raise  # begun anew with its process
            log.error(
                "%s: %s", node.label, error, extra={"event": "node-failed", "site": node.site}
            )
            self.ended_badly[node.label] = str(error)
            self._announce_end(node, str(error))
        return True

    def _announce_end(self, node: SiteNode, reason: str) -> None:
        """Announce the reason why a node stopped by itself for the site, and for its slot."""
        for folder in {self._by_site()[node.site][0].folder, node.folder}:
            _announce_end(folder, reason)

    async def _run_in_turn(self, node: SiteNode) -> None:
        async with AsyncExitStack() as turn:
            await turn.enter_async_context(self._starting)
            running = asyncio.create_task(node.run(), name=f"{node.label}: node")
            try:
                await _up_or_over(node, running)
                await turn.aclose()  # the next one's turn
                await running
            finally:
                running.cancel()
                await asyncio.wait({running})


def _is_starting(nodes: Sequence[SiteNode]) -> bool:
    """Return True while not all slots of a site run that run at this node; also if none does."""
    here = [node for node in nodes if node.stage != STANDBY]
    return not here or any(node.stages is None for node in here)


def _site(nodes: Sequence[SiteNode]) -> dict[str, Any]:
    """Return the report of a site, from the nodes of its slots."""
    reports = [site_report(node) for node in nodes]
    return reports[0] if len(reports) == 1 else node_of_slots(reports)


def _links(nodes: Sequence[SiteNode]) -> list[dict[str, Any]]:
    """Return the reports of the links that begin at a site, from the nodes of its slots."""
    reports = [link_reports(node) for node in nodes]
    return reports[0] if len(reports) == 1 else links_of_slots(reports)


async def _up_or_over(node: SiteNode, running: asyncio.Task[None]) -> None:
    """Wait until the node is up or stands by, or has ended, or has had its turn: its broker may be
    away.
    """
    up = asyncio.create_task(node.is_begun.wait())
    try:
        await asyncio.wait({up, running}, timeout=TURN_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        up.cancel()


def _announce(folder: Path, port: int) -> None:
    """Write where this site's node answers: STATE/sites/SITE/node.json."""
    folder.mkdir(parents=True, exist_ok=True)
    announced = {"pid": os.getpid(), "admin_port": port}
    durable_file.write(folder / ANNOUNCED, json.dumps(announced))


def _announce_end(folder: Path, reason: str) -> None:
    """Add the reason why the node stopped by itself to node.json, for commands after the process's
    end.
    """
    file = folder / ANNOUNCED
    announced = json.loads(file.read_text())
    durable_file.write(file, json.dumps({**announced, "stopped": reason}))


LOCK = "process.lock"


@contextlib.contextmanager
def only_process(folder: Path) -> Iterator[None]:
    """Lock the site's folder for this process. Raises StoreLocked, OSError. The lock ends with the
    process, however the process ends.

    The store has a lock of its own, which comes too late: by then a second process would have
    overwritten the first one's admin port and token in the folder, and nobody could reach the first
    process any more, which still serves the site.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreLocked(folder, _holder(folder)) from None
        yield
    finally:
        os.close(descriptor)


def _holder(folder: Path) -> int | None:
    """PID in the file that the folder's process has written, or None."""
    try:
        return int(json.loads((folder / ANNOUNCED).read_text())["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


NOTIFY_EVERY_S = 5.0
_LEAST_BETWEEN_S = 0.1


class ServiceManager:
    """Reports readiness, life and state to systemd. `environ` is the process's environment;
    `summary` returns a line about the sites.

    The protocol is sd_notify(3): datagrams of NAME=value lines to the socket in NOTIFY_SOCKET.
    Without one (no systemd, or another Type=) nothing is sent. The sign of life comes from the
    event loop that relays: a loop that hangs is killed and started again after WatchdogSec.
    """

    def __init__(self, environ: Mapping[str, str], pid: int, summary: Callable[[], str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._summary = summary
        self._socket: socket.socket | None = None
        self.watchdog_s: float | None = None
        """Longest time (s) between signs of life, or None if none is expected."""
        usec = environ.get("WATCHDOG_USEC", "")
        if usec.isdecimal() and environ.get("WATCHDOG_PID", str(pid)) == str(pid):
            self.watchdog_s = int(usec) / 1e6
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    async def run(self) -> None:
        """Report readiness, then signs of life and the summary until cancelled."""
        self._notify("READY=1")
        every_s = (
            NOTIFY_EVERY_S if self.watchdog_s is None else min(NOTIFY_EVERY_S, self.watchdog_s / 3)
        )
        while self._socket is not None:
            self._notify(f"WATCHDOG=1\nSTATUS={self._summary()}")
            await asyncio.sleep(max(_LEAST_BETWEEN_S, every_s))

    def stopping(self) -> None:
        """Report that the process ends in order."""
        self._notify("STOPPING=1")

    def close(self) -> None:
        """Close; idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _notify(self, text: str) -> None:
        if self._socket is None:
            return
        # A leading @ stands for the null byte of an abstract socket.
        path = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            self._socket.sendto(text.encode(), path)
        except OSError as error:
            # A full buffer, or systemd starts anew: the next sign of life follows.
            log.warning(
                "systemd was not told %s: %s",
                text.partition("\n")[0],
                error,
                extra={"event": "systemd-away"},
            )
