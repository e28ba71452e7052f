"""Supervised processes behind one Protocol: private brokers, nodes, and the servers that these
share.

Processes are known by PID and start time: a signal never reaches a later process with the same PID.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from isthmus import processes
from isthmus.brokers.errors import LocalBrokerError
from isthmus.brokers.local_brokers import LocalBroker
from isthmus.cluster_parts.server_group import Server

Kind = Literal["broker", "node", "server", "page"]

LOG_LIMIT_BYTES = 5 * 2**20
OLD_LOGS = 2


class ChildStartError(Exception):
    """A child could not be started; `reason` gives the cause, and nothing is left running."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


class Child(Protocol):
    """Process that is restarted whenever it ends."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> Kind: ...

    @property
    def pid(self) -> int | None:
        """PID while running, else None."""

    async def start(self) -> None:
        """Start the process. Raises ChildStartError."""

    async def healthy(self) -> bool:
        """Check health; False without an answer within a few seconds."""

    async def wait_ended(self) -> int:
        """Wait until the process ends; return the exit code, negative for a signal."""

    def last_words(self) -> str:
        """Return the last line written since the start; may be empty."""

    def kill(self) -> None:
        """Send SIGKILL to the process and its descendants; return when all are gone."""

    async def stop(self) -> None:
        """End the process in order, by force after its patience; return when gone."""


class LoggedProcess(ABC):
    """Child whose output goes to `log_file`."""

    kind: Kind

    def __init__(
        self, name: str, command: Sequence[str], log_file: Path, *, stop_patience_s: float
    ) -> None:
        self.name = name
        self.command = tuple(command)
        self.log_file = log_file
        self.stop_patience_s = stop_patience_s
        self._process: subprocess.Popen[bytes] | None = None
        self._log_from = 0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self.is_running else None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def start(self) -> None:
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        rotate(self.log_file, LOG_LIMIT_BYTES, OLD_LOGS)
        with self.log_file.open("ab") as log:
            self._log_from = log.tell()
            self._process = self._spawn(log)

    @abstractmethod
    async def healthy(self) -> bool: ...

    async def wait_ended(self) -> int:
        process = self._begun()
        await until_exit(process.pid)
        return process.wait()

    def last_words(self) -> str:
        return last_line(self.log_file, self._log_from)

    def kill(self) -> None:
        process = self._begun()
        if process.poll() is None and (own := processes.mark(process.pid)) is not None:
            for each in (own, *processes.descendants(own.pid)):
                each.send(signal.SIGKILL)
        process.wait()

    async def stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        own = processes.mark(self._process.pid)
        if own is not None:
            helpers = processes.descendants(own.pid)
            await processes.end([own], first=signal.SIGTERM, patience_s=self.stop_patience_s)
            await processes.end(helpers, first=signal.SIGTERM, patience_s=1.0)
        self._process.wait()

    def _spawn(self, log: BinaryIO) -> subprocess.Popen[bytes]:
        try:
            # The kernel kills it when the thread that starts it ends, however that ends: so this
            # has to be called in the main thread.
            return subprocess.Popen(
                ("setpriv", "--pdeathsig", "KILL", "--", *self.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the supervisor, which ends us in order
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        except OSError as error:
            raise ChildStartError(self.name, str(error)) from error

    def _begun(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError(f"{self.kind} {self.name!r} was not started")
        return self._process


class NodeProcess(LoggedProcess):
    """Node of a site.

    The node writes `{"pid": ..., "admin_port": ...}` to `admin_file`, and is healthy if the PID is
    the child's and GET /health is answered with any status: only silence matters here, the content
    is for status.
    """

    kind: Kind = "node"

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log_file: Path,
        admin_file: Path,
        *,
        check_limit_s: float = 2.0,
        stop_patience_s: float = 10.0,
    ) -> None:
        super().__init__(name, command, log_file, stop_patience_s=stop_patience_s)
        self.admin_file = admin_file
        self.check_limit_s = check_limit_s

    async def healthy(self) -> bool:
        port = self._admin_port()
        return port is not None and await answers_http(port, "/health", self.check_limit_s)

    def _admin_port(self) -> int | None:
        try:
            announced = json.loads(self.admin_file.read_text())
        except (FileNotFoundError, ValueError):
            return None  # not written yet, or in part
        if not isinstance(announced, dict) or announced.get("pid") != self.pid:
            return None  # left by an earlier process
        port = announced.get("admin_port")
        return port if isinstance(port, int) else None


ANNOUNCED_PAGE = "page.json"
"""File of the state folder that names the page's process and its port, as a node's does."""


class PageProcess(NodeProcess):
    """Page of the mesh, known and healthy by what it announces, as a node is."""

    kind: Kind = "page"


class ServerProcess(LoggedProcess):
    """Private ZooKeeper or Cassandra that the nodes of sites share, healthy while it serves."""

    kind: Kind = "server"

    def __init__(
        self, name: str, server: Server, log_file: Path, *, stop_patience_s: float = 20.0
    ) -> None:
        super().__init__(name, server.command, log_file, stop_patience_s=stop_patience_s)
        self._server = server

    async def start(self) -> None:
        try:
            self._server.prepare()
        except OSError as error:
            raise ChildStartError(self.name, str(error)) from error
        await super().start()

    async def healthy(self) -> bool:
        return await self._server.serves()


MOST_START_DOUBLINGS = 3
"""Doublings of the start limit, from one minute to eight; a broker slower than eight minutes needs
a person.
"""


class BrokerProcess:
    """Private broker.

    Health is checked at the management port, which logs nothing; a client that greets and leaves
    the AMQP port would log two lines every three seconds.
    """

    kind: Kind = "broker"

    def __init__(
        self, broker: LocalBroker, *, check_limit_s: float = 3.0, start_limit_s: float = 60.0
    ) -> None:
        self.broker = broker
        self.check_limit_s = check_limit_s
        self.start_limit_s = start_limit_s
        self._failed_starts = 0
        self._was_killed = False

    @property
    def name(self) -> str:
        return self.broker.spec.name

    @property
    def pid(self) -> int | None:
        return self.broker.pid

    async def start(self) -> None:
        self._was_killed = False
        # Each time longer: brokers that a busy machine does not start in time, and that are
        # therefore begun anew together, would keep it busy for ever.
        patience = 2 ** min(self._failed_starts, MOST_START_DOUBLINGS)
        try:
            await self.broker.start(deadline_s=self.start_limit_s * patience)
        except (LocalBrokerError, OSError) as error:
            self._failed_starts += 1
            raise ChildStartError(self.name, str(error)) from error
        self._failed_starts = 0

    async def healthy(self) -> bool:
        return await answers_http(self.broker.spec.management_port, "/", self.check_limit_s)

    async def wait_ended(self) -> int:
        pid = self.broker.pid
        if pid is not None:
            await until_exit(pid)
        return -signal.SIGKILL if self._was_killed else await self.broker.wait_ended()

    def last_words(self) -> str:
        lines = [line.strip() for line in self.broker.last_lines(1) if line.strip()]
        return lines[-1] if lines else ""

    def kill(self) -> None:
        self._was_killed = True
        self.broker.kill()

    async def stop(self) -> None:
        await self.broker.stop()


async def until_exit(pid: int) -> None:
    """Wait until a child process ends, without taking the exit code."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return  # ended, and its exit code was taken
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    try:
        loop.add_reader(descriptor, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def answers_http(port: int, path: str, limit_s: float) -> bool:
    """True if a loopback port sends the beginning of any HTTP answer within the limit."""
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(limit_s):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode())
            return (await reader.readexactly(5)) == b"HTTP/"
    except (OSError, asyncio.IncompleteReadError):  # TimeoutError is an OSError
        return False
    finally:
        if writer is not None:
            writer.transport.abort()


def rotate(log_file: Path, limit_bytes: int, keep: int) -> None:
    """Move a log larger than the limit to NAME.1, older ones up to NAME.`keep`."""
    if not log_file.exists() or log_file.stat().st_size < limit_bytes:
        return
    names = [log_file, *(log_file.with_name(f"{log_file.name}.{n}") for n in range(1, keep + 1))]
    for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
        if newer.exists():
            newer.replace(older)


def last_line(log_file: Path, start: int, *, at_most_bytes: int = 8192) -> str:
    """Return the last non-empty line from `start` on."""
    try:
        with log_file.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(start, size - at_most_bytes))
            text = log.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
