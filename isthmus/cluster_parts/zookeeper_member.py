"""Settings and command of a private ZooKeeper's member, on loopback, from the jars that `make
cluster-parts` fetches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from isthmus.cluster_parts.server_tls import ServerTls

JARS = Path(__file__).resolve().parent.parent.parent / ".cluster-parts" / "zookeeper"
TICK_MS = 500
"""Unit of ZooKeeper's times: a session lasts at least two."""
_ANSWERS_WITHIN_S = 1.0
_LOGBACK = """<configuration><appender name="out" class="ch.qos.logback.core.ConsoleAppender">
<encoder><pattern>%d %level %logger %msg%n</pattern></encoder></appender>
<root level="WARN"><appender-ref ref="out"/></root></configuration>
"""


@dataclass(frozen=True, slots=True)
class MemberPorts:
    """Ports of a member: for clients, for the other members, for elections."""

    clients: int
    peers: int = 0
    elections: int = 0


@dataclass(frozen=True, slots=True)
class ZookeeperMember:
    """Member of an ensemble, whose files are in `folder`. With `tls` it asks clients for
    certificates.
    """

    folder: Path
    ensemble: Sequence[MemberPorts]
    number: int = 0
    """Place of the member in `ensemble`."""
    tls: ServerTls | None = None

    @property
    def port(self) -> int:
        """Port for clients."""
        return self.ensemble[self.number].clients

    @property
    def command(self) -> Sequence[str]:
        """Command that runs the member in the foreground."""
        return (
            *("java", "-Xms32m", "-Xmx96m", "-XX:+UseSerialGC", "-XX:-UsePerfData"),
            "-XX:ActiveProcessorCount=2",
            f"-Dlogback.configurationFile={self.folder / 'logback.xml'}",
            *("-cp", f"{self.folder}:{JARS}/*"),
            *("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self.folder / "zoo.cfg")),
        )

    def prepare(self) -> None:
        """Write the member's settings. Raises OSError."""
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(str(self.number + 1))
        (self.folder / "logback.xml").write_text(_LOGBACK)
        (self.folder / "zoo.cfg").write_text("\n".join(self._settings()))

    async def serves(self) -> bool:
        """Ask for the member's role, which it has once there is a leader."""
        try:
            async with asyncio.timeout(_ANSWERS_WITHIN_S):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", self.port, ssl=None if self.tls is None else self.tls.probe
                )
                try:
                    writer.write(b"srvr")
                    return b"Mode:" in await reader.read()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False

    def _settings(self) -> Sequence[str]:
        return (
            f"tickTime={TICK_MS}",
            "initLimit=20",
            "syncLimit=10",
            f"dataDir={self.folder / 'data'}",
            *self._client_port(),
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr",
            "autopurge.purgeInterval=1",
            *(
                f"server.{number}=127.0.0.1:{ports.peers}:{ports.elections}"
                for number, ports in enumerate(self.ensemble, start=1)
                if len(self.ensemble) > 1
            ),
        )

    def _client_port(self) -> Sequence[str]:
        if self.tls is None:
            return (f"clientPort={self.port}", "clientPortAddress=127.0.0.1")
        return (
            f"secureClientPort={self.port}",
            "secureClientPortAddress=127.0.0.1",
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            f"ssl.keyStore.location={self.tls.pair}",
            f"ssl.trustStore.location={self.tls.ca}",
            "ssl.clientAuth=need",
        )
