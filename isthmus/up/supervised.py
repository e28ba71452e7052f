"""What the supervisor can look after: private brokers and nodes, behind one small seam.

Everything is by process, not by name: a PID is only ever signalled while it is still that process.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from isthmus import processes
from isthmus.brokers.errors import LocalBrokerError
from isthmus.brokers.local_brokers import LocalBroker

Kind = Literal["broker", "node"]

LOG_LIMIT_BYTES = 5 * 2**20
OLD_LOGS = 2


class ChildStartError(Exception):
    """A child could not be started; `reason` says why, and nothing of it is left running."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


class Child(Protocol):
    """One process that is begun again whenever it ends."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> Kind: ...

    @property
    def pid(self) -> int | None:
        """While it runs."""

    @property
    def is_running(self) -> bool:
        """Whether its process lives."""

    async def start(self) -> None:
        """Begins a process. Raises ChildStartError."""

    async def healthy(self) -> bool:
        """Asks it; False if it gives no answer in its time, which is a few seconds."""

    async def wait_ended(self) -> int:
        """Waits until its process has ended; its exit code, negative for a signal."""

    def last_words(self) -> str:
        """The last line that it wrote since its start; may be empty."""

    def kill(self) -> None:
        """SIGKILL to it and to what it has started; returns when they are gone."""

    async def stop(self) -> None:
        """Ends it in good order, by force after its time; returns when it is gone."""


class NodeProcess:
    """A site's node.

    `admin_file` is where the node says, as JSON, `{"pid": ..., "admin_port": ...}`: it is healthy
    if that is this process and it answers GET /health, with whatever status: what it says of itself
    is for status, that it says something is for us. Output goes to `log_file`.
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
        self.name = name
        self.command = tuple(command)
        self.log_file = log_file
        self.admin_file = admin_file
        self.check_limit_s = check_limit_s
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

    async def healthy(self) -> bool:
        port = self._admin_port()
        return port is not None and await answers_http(port, "/health", self.check_limit_s)

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
            raise RuntimeError(f"node {self.name!r} was not started")
        return self._process

    def _admin_port(self) -> int | None:
        try:
            told = json.loads(self.admin_file.read_text())
        except (FileNotFoundError, ValueError):
            return None  # not there yet, or only half
        if not isinstance(told, dict) or told.get("pid") != self.pid:
            return None  # of a process before this one
        port = told.get("admin_port")
        return port if isinstance(port, int) else None


def site_node(mesh_file: Path, site: str, state: Path) -> NodeProcess:
    """The node of one site of a mesh, as `isthmus relay` runs it."""
    words = ("relay", str(mesh_file), "--site", site, "--state", str(state))
    return NodeProcess(
        site,
        (sys.executable, "-m", "isthmus", *words),
        state / "logs" / f"{site}.log",
        state / "sites" / site / "node.json",
    )


MOST_START_DOUBLINGS = 3
"""A minute becomes eight: who waits longer than that for a broker wants to be told."""


class BrokerProcess:
    """A private broker.

    It is asked over its management port, which answers without a word in its log; a client that
    says hello at the AMQP port and leaves would be two lines of it, every three seconds.
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

    @property
    def is_running(self) -> bool:
        return self.broker.is_running

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
    """Waits until our own child has ended, without taking its exit code."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return  # ended, and somebody has its code already
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    try:
        loop.add_reader(descriptor, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def answers_http(port: int, path: str, limit_s: float) -> bool:
    """Whether a loopback port gives the beginning of any HTTP answer within the limit."""
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
    """Moves a log that has grown over the limit aside, to NAME.1 and up to NAME.`keep`."""
    if not log_file.exists() or log_file.stat().st_size < limit_bytes:
        return
    names = [log_file, *(log_file.with_name(f"{log_file.name}.{n}") for n in range(1, keep + 1))]
    for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
        if newer.exists():
            newer.replace(older)


def last_line(log_file: Path, start: int, *, at_most_bytes: int = 8192) -> str:
    """The last line that is not empty, from `start` on."""
    try:
        with log_file.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(start, size - at_most_bytes))
            text = log.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
