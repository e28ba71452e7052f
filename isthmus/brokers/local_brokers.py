"""Private RabbitMQ nodes on loopback, for `isthmus up`, the demo and tests.

A broker is two child processes, the Erlang machine and an epmd (shared by the brokers of a
cluster), ended by PID. All files are in one folder, so that a restarted broker keeps its data and
ports; only one process may run the broker of a folder.

The node is ready once its log has the ready line, after all listeners are up and the definitions
imported, *and* the three listeners accept.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from federation import durable_file
from isthmus import processes
from isthmus.brokers import config as broker_config
from isthmus.brokers.config import BrokerSpec
from isthmus.brokers.errors import BrokerStartError
from isthmus.brokers.installation import RabbitMQInstallation
from isthmus.processes import ProcessMark


class Epmd:
    """Erlang port mapper of a broker, or of all brokers of a cluster, which find each other through
    it.

    The mapper has to outlive each broker: the first broker spawns the process, the last one ends
    it. Each broker has a `user` name of its own.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._users: set[str] = set()

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """Process, or None before the first use and after the last."""
        return self._process

    def use(self, user: str, spawn: Callable[[], subprocess.Popen[bytes]]) -> None:
        """Count a broker in; spawn the process unless running."""
        if self._process is None or self._process.poll() is not None:
            self._process = spawn()
        self._users.add(user)

    def leave(self, user: str) -> subprocess.Popen[bytes] | None:
        """Count a broker out; return the process, for the caller to end, if no broker is left."""
        self._users.discard(user)
        if self._users:
            return None
        process, self._process = self._process, None
        return process


COOKIE_NAME = ".erlang.cookie"
READY_LINE = b"Server startup complete"
POLL_S = 0.05
LAST_LINES = 20

# Many virtual hosts need many files; but Erlang sizes tables after the limit, so it must not be
# the million of some container engines either.
_WITH_FILES = 'ulimit -n 65536 2>/dev/null || ulimit -n "$(ulimit -Hn)"; exec "$@"'


class LocalBroker:
    """One private RabbitMQ node.

    `spec` may be replaced while the node is down and applies from the next start: users, virtual
    hosts and permissions are added and changed, never removed. With `die_with_parent` the kernel
    kills the node when the thread that started the node ends. Brokers of a cluster share `epmd`.
    """

    def __init__(
        self,
        spec: BrokerSpec,
        installation: RabbitMQInstallation,
        *,
        die_with_parent: bool = True,
        epmd: Epmd | None = None,
    ) -> None:
        self.spec = spec
        self.installation = installation
        self.die_with_parent = die_with_parent
        self._node: subprocess.Popen[bytes] | None = None
        self._epmd = epmd or Epmd()
        self._is_wanted = False

    @property
    def has_data(self) -> bool:
        """True if the folder has data of an earlier start."""
        return (self.spec.folder / "data" / "node").exists()

    @property
    def is_running(self) -> bool:
        """True while the node's process lives, ready or not."""
        return self._node is not None and self._node.poll() is None

    @property
    def pid(self) -> int | None:
        """PID of the Erlang machine, or None when not running."""
        return self._node.pid if self._node is not None and self._node.poll() is None else None

    async def start(self, *, deadline_s: float = 60.0) -> None:
        """Start the node, unless running, and wait until ready.

        Processes left by an earlier owner of the folder are ended first. Raises BrokerStartError
        with the last lines of the log; nothing is left running then.
        """
        if self.is_running:
            return
        await self._end_leftovers()
        self._is_wanted = True
        log_from = await asyncio.to_thread(self._write_files)
        limit = time.monotonic() + deadline_s
        with contextlib.ExitStack() as unless_ready:
            # Also when cancelled: a half-started node belongs to nobody.
            unless_ready.callback(self.kill)
            epmd = ("epmd", "-address", self.spec.host, "-port", str(self.spec.epmd_port))
            self._epmd.use(self.spec.name, lambda: self._spawn(*epmd))
            self._write_marks()
            await self._until_accepting(self.spec.epmd_port, limit)
            self._node = self._spawn(str(self.installation.home / "sbin" / "rabbitmq-server"))
            self._write_marks()
            await self._until_ready(log_from, limit)
            unless_ready.pop_all()

    async def stop(self, *, patience_s: float = 30.0) -> None:
        """End the node in order, by force after `patience_s`; return when all processes are
        gone.
        """
        self._is_wanted = False
        if self._node is not None and (node := self._mark_of(self._node)) is not None:
            helpers = processes.descendants(node.pid)
            await processes.end([node], first=signal.SIGTERM, patience_s=patience_s)
            # Helper programs end by themselves when their pipe to the node closes.
            await processes.end(helpers, first=signal.SIGCONT, patience_s=2.0)
        left = self._epmd.leave(self.spec.name)
        if left is not None and (epmd := self._mark_of(left)) is not None:
            await processes.end([epmd], first=signal.SIGTERM, patience_s=2.0)
        self._reap(left)

    def kill(self) -> None:
        """Send SIGKILL to the node and its helpers; return when all are gone."""
        self._is_wanted = False
        marks: list[ProcessMark] = []
        left = self._epmd.leave(self.spec.name)
        for child in (self._node, left):
            if child is not None and (own := self._mark_of(child)) is not None:
                marks += [own, *processes.descendants(own.pid)]
        for each in marks:
            each.send(signal.SIGKILL)
        self._reap(left)

    def suspend(self) -> None:
        """Send SIGSTOP: the node hangs with its connections open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT after suspend()."""
        self._signal(signal.SIGCONT)

    async def wait_ended(self) -> int:
        """Wait until the node's process ends; return the exit code."""
        if self._node is None:
            raise RuntimeError(f"broker {self.spec.name!r} was not started")
        own = self._mark_of(self._node)
        if own is not None:
            await processes.gone([own])
        return self._node.wait()

    def last_lines(self, count: int = LAST_LINES) -> list[str]:
        """Return the last `count` lines of the log and of the output, and the last line with a
        failure's reason.

        A failed start gives the reason in one of the files, depending on the phase, followed by
        pages of Erlang terms.
        """
        lines: list[str] = []
        reasons: list[str] = []
        for file in (self.spec.log_file, self._output_file):
            if file.exists():
                all_lines = file.read_text(errors="replace").splitlines()
                lines += all_lines[-count:]
                reasons += [line for line in all_lines if line.startswith("ERROR:")]
        return lines + reasons[-1:]

    @property
    def _output_file(self) -> Path:
        return self.spec.folder / "log" / "output.log"

    @property
    def _marks_file(self) -> Path:
        return self.spec.folder / "processes.json"

    def _signal(self, number: signal.Signals) -> None:
        if self._node is None or self._node.poll() is not None:
            raise RuntimeError(f"broker {self.spec.name!r} does not run")
        self._node.send_signal(number)

    def _mark_of(self, child: subprocess.Popen[bytes]) -> ProcessMark | None:
        return processes.mark(child.pid) if child.poll() is None else None

    def _reap(self, epmd: subprocess.Popen[bytes] | None) -> None:
        for child in (self._node, epmd):
            if child is not None:
                child.wait()
        self._node = None
        self._marks_file.unlink(missing_ok=True)

    def _spawn(self, *words: str) -> subprocess.Popen[bytes]:
        command = (
            *("sh", "-c", _WITH_FILES, "isthmus"),
            *self.installation.command(self.spec.folder.absolute(), *words),
        )
        if self.spec.namespace:
            command = ("ip", "netns", "exec", self.spec.namespace, *command)
        if self.die_with_parent:
            command = ("setpriv", "--pdeathsig", "KILL", *command)
        with self._output_file.open("ab") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.spec.folder,
                env=broker_config.environment(self.spec, self.installation, os.environ),
                # Away from the terminal's signals: Ctrl-C is for the owner, which stops us.
                start_new_session=True,
                umask=0o077,
            )

    def _write_files(self) -> int:
        """Write the configuration; return the log's size, where the new run's lines begin."""
        spec = self.spec
        for folder in (spec.folder, spec.folder / "log", spec.folder / "data"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        seen_as = self.installation.path_inside(spec.folder.absolute())
        for name, text in {
            "rabbitmq.conf": broker_config.rabbitmq_conf(spec, seen_as, self.installation.release),
            "definitions.json": broker_config.definitions(spec, secrets.token_bytes),
            "enabled_plugins": broker_config.enabled_plugins(spec.plugins),
            "inetrc": broker_config.ERLANG_RESOLVER,
            # Given but empty, so that those of /etc/rabbitmq take no part.
            "rabbitmq-env.conf": "",
            "advanced.config": "[].\n",
        }.items():
            durable_file.write(spec.folder / name, text, mode=durable_file.OWNER_ONLY)
        self._link_plugins()
        cookie = spec.folder / COOKIE_NAME
        if spec.peers is not None:
            durable_file.write(cookie, spec.peers.cookie, mode=durable_file.OWNER_ONLY)
        elif not cookie.exists():
            durable_file.write(cookie, secrets.token_hex(16), mode=durable_file.OWNER_ONLY)
        self._output_file.unlink(missing_ok=True)
        return spec.log_file.stat().st_size if spec.log_file.exists() else 0

    def _link_plugins(self) -> None:
        links = self.spec.folder / "plugins"
        # Made anew each time: another installation may have its turn with this folder.
        if links.is_symlink():
            links.unlink()
        elif links.exists():
            shutil.rmtree(links)
        all_plugins = self.installation.home / "plugins"
        needed = needed_plugins(self.installation.home_outside / "plugins", self.spec.plugins)
        if not needed:
            links.symlink_to(all_plugins)
            return
        links.mkdir()
        for name in needed:
            (links / name).symlink_to(all_plugins / name)

    def _write_marks(self) -> None:
        marks = [
            [own.pid, own.began, own.boot]
            for child in (self._node, self._epmd.process)
            if child is not None and (own := self._mark_of(child)) is not None
        ]
        durable_file.write(self._marks_file, json.dumps(marks), mode=durable_file.OWNER_ONLY)

    async def _end_leftovers(self) -> None:
        if self._node is not None or self._epmd.process is not None:
            await self.stop()
        if not self._marks_file.exists():
            return
        for pid, began, boot in json.loads(self._marks_file.read_text() or "[]"):
            left = ProcessMark(pid, began, boot)
            helpers = processes.descendants(pid) if left.is_alive else ()
            await processes.end([left], first=signal.SIGTERM, patience_s=30.0)
            await processes.end(helpers, first=signal.SIGCONT, patience_s=2.0)
        self._marks_file.unlink()

    async def _until_ready(self, log_from: int, limit: float) -> None:
        while not self._logged_ready(log_from):
            self._check_starting(limit)
            await asyncio.sleep(POLL_S)
        for port in (self.spec.amqp_port, self.spec.stream_port, self.spec.management_port):
            await self._until_accepting(port, limit)

    def _logged_ready(self, log_from: int) -> bool:
        try:
            with self.spec.log_file.open("rb") as log:
                # A log that was rotated meanwhile is shorter than where we left it.
                log.seek(min(log_from, self.spec.log_file.stat().st_size))
                return READY_LINE in log.read()
        except FileNotFoundError:
            return False

    async def _until_accepting(self, port: int, limit: float) -> None:
        while True:
            self._check_starting(limit)
            try:
                _, writer = await asyncio.open_connection(self.spec.host, port)
            except OSError:
                await asyncio.sleep(POLL_S)
                continue
            writer.close()
            # How the far end takes our going is of no interest: it did accept.
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            return

    def _check_starting(self, limit: float) -> None:
        if not self._is_wanted:
            self._fail("was stopped while it was starting")
        for what, child in (("its epmd", self._epmd.process), ("it", self._node)):
            if child is not None and (code := child.poll()) is not None:
                self._fail(f"did not start: {what} ended with {processes.exit_words(code)}")
        if time.monotonic() >= limit:
            self._fail("was not ready in time")

    def _fail(self, problem: str) -> None:
        raise BrokerStartError(self.spec.name, problem, self.spec.log_file, self.last_lines())


_APPLICATIONS = re.compile(r"\{applications,\s*\[([^\]]*)\]")
_ATOM = re.compile(r"[a-z][a-z0-9_]*")


def needed_plugins(plugins: Path, wanted: Iterable[str]) -> list[str]:
    """Return the sorted folders in `plugins` for the wanted plugins and the server, or nothing if
    unknown (plugins packed as .ez): use the whole folder then.

    RabbitMQ reads the schema and all modules of every plugin in the folder at boot, enabled or not:
    a folder with links to the needed ones starts a second faster (of six) and saves 8 MB.
    """
    folders = {folder.name.rpartition("-")[0]: folder for folder in plugins.glob("*-*")}
    ahead = ["rabbit", "rabbitmq_prelaunch", *wanted]
    needed: dict[str, Path] = {}
    while ahead:
        name = ahead.pop()
        # Applications that are not here come with Erlang.
        if name in needed or (name not in folders and needed):
            continue
        folder = folders.get(name)
        description = folder / "ebin" / f"{name}.app" if folder is not None else None
        if folder is None or description is None or not description.is_file():
            return []
        needed[name] = folder
        if applications := _APPLICATIONS.search(description.read_text(errors="replace")):
            ahead += _ATOM.findall(applications[1])
    return sorted(folder.name for folder in needed.values())
