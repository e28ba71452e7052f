"""Private Cassandra on loopback, from the jars that `make cluster-parts` fetches.

Nodes have an address each (127.0.0.1, 127.0.0.2, ...) and the same two ports. Nodes start one after
the other, as a joining node needs a settled ring.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

import yaml

from isthmus import processes
from isthmus.brokers.ports import free_ports
from isthmus.cluster_parts.server_tls import ServerTls

JARS = Path(__file__).resolve().parent.parent.parent / ".cluster-parts" / "cassandra"
START_WITHIN_S = 180.0
SUPERUSER = "cassandra", "cassandra"
"""User and password that a new Cassandra has."""
_POLL_S = 0.1
_PATIENCE_S = 20.0
_LAST_LINES = 20

_EXPORTS = (
    *("java.base/jdk.internal.misc", "java.base/java.lang.ref", "java.base/sun.nio.ch"),
    *("java.management.rmi/com.sun.jmx.remote.internal.rmi", "java.rmi/sun.rmi.registry"),
    *("java.rmi/sun.rmi.server", "java.sql/java.sql", "jdk.unsupported/sun.misc"),
    *("jdk.compiler/com.sun.tools.javac.file", "jdk.attach/sun.tools.attach"),
)
_OPENS = (
    *(f"java.base/java.{name}" for name in ("lang", "lang.module", "lang.reflect", "io", "net")),
    *(f"java.base/java.{name}" for name in ("nio", "util", "util.concurrent")),
    *("java.base/java.util.concurrent.atomic", "java.base/sun.nio.ch"),
    *(f"java.base/jdk.internal.{name}" for name in ("loader", "ref", "reflect", "math", "module")),
    *("java.base/jdk.internal.util.jar", "jdk.management/com.sun.management.internal"),
    "jdk.compiler/com.sun.tools.javac",
)
_LOGBACK = """<configuration><appender name="log" class="ch.qos.logback.core.FileAppender">
<file>{file}</file><encoder><pattern>%d %level %logger %msg%n</pattern></encoder></appender>
<root level="WARN"><appender-ref ref="log"/></root></configuration>
"""


def _encryption(tls: ServerTls) -> dict[str, object]:
    return {
        "enabled": True,
        "require_client_auth": True,
        "ssl_context_factory": {
            "class_name": "org.apache.cassandra.security.PEMBasedSslContextFactory",
            "parameters": {
                "private_key": tls.pair.read_text(),
                "trusted_certificates": tls.ca.read_text(),
            },
        },
    }


class CassandraStartError(Exception):
    """A node did not come up; the text has the last lines of its log."""


class CassandraNodes:
    """Private Cassandra in `folder`. Use as `async with`, or call `start` and `stop`. With `tls` it
    asks clients for certificates, and maybe for passwords: it has SUPERUSER then.
    `settings` are more of cassandra.yaml.
    """

    def __init__(
        self,
        folder: Path,
        count: int,
        tls: ServerTls | None = None,
        *,
        asks_password: bool = False,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._tls = tls
        self._asks_password = asks_password
        self._more = settings or {}
        self.addresses = [f"127.0.0.{number}" for number in range(1, count + 1)]
        self.port, self._storage_port = free_ports(2)
        self._folder = folder
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    def pid(self, address: str) -> int:
        """Return the process ID of a node."""
        return self._processes[address].pid

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as unless_up:
            unless_up.push_async_callback(self.stop)
            await self.start()
            unless_up.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start all nodes. Raises CassandraStartError."""
        for address in self.addresses:
            await self.start_node(address)

    async def start_node(self, address: str) -> None:
        """Start one node and wait until it takes clients."""
        folder = self._folder / address
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cassandra.yaml").write_text(yaml.safe_dump(self._settings(address, folder)))
        (folder / "logback.xml").write_text(_LOGBACK.format(file=folder / "cassandra.log"))
        with (folder / "output.log").open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *("setpriv", "--pdeathsig", "KILL", "--", *self._command(folder)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={"PATH": os.environ["PATH"]},
            )
        self._processes[address] = process
        try:
            async with asyncio.timeout(START_WITHIN_S):
                while not await self._takes_clients(address):
                    if process.returncode is not None:
                        raise CassandraStartError(self._why(address, "has ended"))
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise CassandraStartError(
                self._why(address, f"takes no clients after {START_WITHIN_S:.0f} s")
            ) from None

    async def stop(self) -> None:
        """End all nodes, each by its process ID."""
        marks = [processes.mark(process.pid) for process in self._processes.values()]
        await processes.end(
            [mark for mark in marks if mark is not None],
            first=signal.SIGTERM,
            patience_s=_PATIENCE_S,
        )
        for process in self._processes.values():
            await process.wait()
        self._processes = {}

    async def _takes_clients(self, address: str) -> bool:
        try:
            _, writer = await asyncio.open_connection(address, self.port)
        except OSError:
            return False
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True

    def _why(self, address: str, what: str) -> str:
        lines: list[str] = []
        for name in ("output.log", "cassandra.log"):
            with contextlib.suppress(OSError):
                lines += (self._folder / address / name).read_text(errors="replace").splitlines()
        return "\n".join([f"Cassandra at {address} {what}:", *lines[-_LAST_LINES:]])

    def _settings(self, address: str, folder: Path) -> dict[str, object]:
        seed = f"{self.addresses[0]}:{self._storage_port}"
        return {
            "cluster_name": "isthmus",
            "num_tokens": 1,
            "initial_token": str(self._token(address)),
            # All are new and empty: a node that fetched its part would need the others' gossip in
            # time, which a busy machine delays.
            "auto_bootstrap": False,
            "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
            "listen_address": address,
            "rpc_address": address,
            "native_transport_port": self.port,
            "storage_port": self._storage_port,
            "start_native_transport": True,
            "seed_provider": [
                {
                    "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
                    "parameters": [{"seeds": seed}],
                }
            ],
            # A power cut must not take what was acknowledged.
            "commitlog_sync": "batch",
            "endpoint_snitch": "SimpleSnitch",
            "data_file_directories": [str(folder / "data")],
            **{
                f"{name}_directory": str(folder / name)
                for name in ("commitlog", "saved_caches", "hints", "cdc_raw")
            },
            "disk_optimization_strategy": "ssd",
            "auto_snapshot": False,
            "memtable_heap_space": "64MiB",
            "memtable_offheap_space": "64MiB",
            "key_cache_size": "8MiB",
            "commitlog_total_space": "128MiB",
            "concurrent_reads": 8,
            "concurrent_writes": 8,
            **({"authenticator": "PasswordAuthenticator"} if self._asks_password else {}),
            **({} if self._tls is None else {"client_encryption_options": _encryption(self._tls)}),
            **self._more,
        }

    def _token(self, address: str) -> int:
        """Return the token of a node, by which all have equal parts of the ring."""
        return -(2**63) + 2**64 * self.addresses.index(address) // len(self.addresses)

    def _command(self, folder: Path) -> Sequence[str]:
        agents = sorted(JARS.glob("jamm-*.jar"))
        if not agents:
            raise CassandraStartError(f"no Cassandra in {JARS}: run `make cluster-parts`")
        properties = {
            "logback.configurationFile": folder / "logback.xml",
            "cassandra.config": f"file://{folder / 'cassandra.yaml'}",
            "cassandra.storagedir": folder,
            "cassandra.consistent.rangemovement": "false",
            "cassandra.skip_wait_for_gossip_to_settle": 0,
            "cassandra.ring_delay_ms": 1000,
            "cassandra.jmx.local.port": 0,
            "cassandra.superuser_setup_delay_ms": 0,
            "cassandra-foreground": "yes",
            "jdk.attach.allowAttachSelf": "true",
            "io.netty.tryReflectionSetAccessible": "true",
        }
        return (
            *("java", "-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:-UsePerfData"),
            "-XX:ActiveProcessorCount=2",
            *(f"-D{name}={value}" for name, value in properties.items()),
            *(f"--add-exports={name}=ALL-UNNAMED" for name in _EXPORTS),
            *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENS),
            f"-javaagent:{agents[0]}",
            *("-cp", f"{folder}:{JARS}/*", "org.apache.cassandra.service.CassandraDaemon"),
        )
