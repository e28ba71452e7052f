"""Private ZooKeeper ensemble on loopback, from the jars that `make cluster-parts` fetches."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from isthmus import processes
from isthmus.brokers.ports import free_ports
from isthmus.cluster_parts.server_tls import ServerTls

JARS = Path(__file__).resolve().parent.parent.parent / ".cluster-parts" / "zookeeper"
START_WITHIN_S = 60.0
TICK_MS = 500
"""Unit of ZooKeeper's times: a session lasts at least two."""
_POLL_S = 0.1
_PATIENCE_S = 10.0
_LAST_LINES = 20
_LOGBACK = """<configuration><appender name="out" class="ch.qos.logback.core.ConsoleAppender">
<encoder><pattern>%d %level %logger %msg%n</pattern></encoder></appender>
<root level="WARN"><appender-ref ref="out"/></root></configuration>
"""


class ZookeeperStartError(Exception):
    """A member did not come up; the text has the last lines of its log."""


class ZookeeperNodes:
    """Private ensemble in `folder`. Use as `async with`, or call `start` and `stop`. With `tls` it
    asks clients for certificates.
    """

    def __init__(self, folder: Path, count: int, tls: ServerTls | None = None) -> None:
        self._tls = tls
        ports = iter(free_ports(3 * count))
        self._ports = [(next(ports), next(ports), next(ports)) for _ in range(count)]
        """Ports of each member: for clients, for the other members, for elections."""
        self._folder = folder
        self._processes: dict[int, asyncio.subprocess.Process] = {}

    @property
    def hosts(self) -> list[str]:
        """HOST:PORT of each member, for clients."""
        return [f"127.0.0.1:{client}" for client, _, _ in self._ports]

    def pid(self, number: int) -> int:
        """Return the process ID of a member; members count from 0."""
        return self._processes[number].pid

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as unless_up:
            unless_up.push_async_callback(self.stop)
            await self.start()
            unless_up.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start all members, and wait until each serves clients. Raises ZookeeperStartError."""
        for number in range(len(self._ports)):
            await self.start_member(number)
        try:
            async with asyncio.timeout(START_WITHIN_S):
                for number in range(len(self._ports)):
                    while not await self._serves(number):
                        if self._processes[number].returncode is not None:
                            raise ZookeeperStartError(self._why(number, "has ended"))
                        await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise ZookeeperStartError(
                self._why(number, f"serves nobody after {START_WITHIN_S:.0f} s")
            ) from None

    async def start_member(self, number: int) -> None:
        """Start one member, which serves clients once a majority is there."""
        folder = self._member(number)
        (folder / "data").mkdir(parents=True, exist_ok=True)
        (folder / "data" / "myid").write_text(str(number + 1))
        (folder / "logback.xml").write_text(_LOGBACK)
        (folder / "zoo.cfg").write_text("\n".join(self._settings(number)))
        with (folder / "output.log").open("ab") as output:
            self._processes[number] = await asyncio.create_subprocess_exec(
                *("setpriv", "--pdeathsig", "KILL", "--", *self._command(folder)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={"PATH": os.environ["PATH"]},
            )

    async def stop(self) -> None:
        """End all members, each by its process ID."""
        marks = [processes.mark(process.pid) for process in self._processes.values()]
        await processes.end(
            [mark for mark in marks if mark is not None],
            first=signal.SIGTERM,
            patience_s=_PATIENCE_S,
        )
        for process in self._processes.values():
            await process.wait()
        self._processes = {}

    async def _serves(self, number: int) -> bool:
        """Ask for the member's role, which it has once there is a leader."""
        try:
            async with asyncio.timeout(1.0):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1",
                    self._ports[number][0],
                    ssl=None if self._tls is None else self._tls.probe,
                )
                try:
                    writer.write(b"srvr")
                    return b"Mode:" in await reader.read()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False

    def _member(self, number: int) -> Path:
        return self._folder / str(number + 1)

    def _why(self, number: int, what: str) -> str:
        output = self._member(number) / "output.log"
        lines = output.read_text(errors="replace").splitlines()
        return "\n".join([f"ZooKeeper {number + 1} {what}:", *lines[-_LAST_LINES:]])

    def _settings(self, number: int) -> Sequence[str]:
        client, _, _ = self._ports[number]
        return (
            f"tickTime={TICK_MS}",
            "initLimit=20",
            "syncLimit=10",
            f"dataDir={self._member(number) / 'data'}",
            *self._client_port(client),
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr",
            *(
                f"server.{member + 1}=127.0.0.1:{peers}:{elections}"
                for member, (_, peers, elections) in enumerate(self._ports)
                if len(self._ports) > 1
            ),
        )

    def _client_port(self, port: int) -> Sequence[str]:
        if self._tls is None:
            return (f"clientPort={port}", "clientPortAddress=127.0.0.1")
        return (
            f"secureClientPort={port}",
            "secureClientPortAddress=127.0.0.1",
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            f"ssl.keyStore.location={self._tls.pair}",
            f"ssl.trustStore.location={self._tls.ca}",
            "ssl.clientAuth=need",
        )

    def _command(self, folder: Path) -> Sequence[str]:
        if not JARS.is_dir():
            raise ZookeeperStartError(f"no ZooKeeper in {JARS}: run `make cluster-parts`")
        return (
            *("java", "-Xms32m", "-Xmx96m", "-XX:+UseSerialGC", "-XX:-UsePerfData"),
            "-XX:ActiveProcessorCount=2",
            f"-Dlogback.configurationFile={folder / 'logback.xml'}",
            *("-cp", f"{folder}:{JARS}/*"),
            *("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(folder / "zoo.cfg")),
        )
