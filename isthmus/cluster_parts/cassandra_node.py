"""Settings and command of a private Cassandra's node, on loopback, from the jars that `make
cluster-parts` fetches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from isthmus.cluster_parts.server_tls import ServerTls

JARS = Path(__file__).resolve().parent.parent.parent / ".cluster-parts" / "cassandra"
_ANSWERS_WITHIN_S = 2.0
_OPTIONS = bytes((4, 0, 0, 0, 5, 0, 0, 0, 0))
"""Frame of Cassandra's native protocol, version 4, with the request OPTIONS."""

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


@dataclass(frozen=True, slots=True)
class CassandraNode:
    """Node whose files are in `folder`. With `tls` it asks clients for certificates, and maybe for
    passwords. `settings` are more of cassandra.yaml.
    """

    folder: Path
    address: str
    port: int
    storage_port: int
    seed: str
    """Address of the node that others join; a lone node's own."""
    token: int = -(2**63)
    tls: ServerTls | None = None
    asks_password: bool = False
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def log_file(self) -> Path:
        """File of Cassandra's own log."""
        return self.folder / "cassandra.log"

    @property
    def command(self) -> Sequence[str]:
        """Command that runs the node in the foreground."""
        (agent, *_) = sorted(JARS.glob("jamm-*.jar"))
        properties = {
            "logback.configurationFile": self.folder / "logback.xml",
            "cassandra.config": f"file://{self.folder / 'cassandra.yaml'}",
            "cassandra.storagedir": self.folder,
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
            f"-javaagent:{agent}",
            *("-cp", f"{self.folder}:{JARS}/*", "org.apache.cassandra.service.CassandraDaemon"),
        )

    def prepare(self) -> None:
        """Write the node's settings. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "cassandra.yaml").write_text(yaml.safe_dump(self._all_settings()))
        (self.folder / "logback.xml").write_text(_LOGBACK.format(file=self.log_file))

    async def serves(self) -> bool:
        """Ask what the node supports, which it answers once it takes clients; with TLS only
        connect.
        """
        try:
            async with asyncio.timeout(_ANSWERS_WITHIN_S):
                reader, writer = await asyncio.open_connection(self.address, self.port)
                try:
                    if self.tls is not None:
                        return True
                    writer.write(_OPTIONS)
                    return bool(await reader.read(1))
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False

    def _all_settings(self) -> dict[str, object]:
        seed = f"{self.seed}:{self.storage_port}"
        return {
            "cluster_name": "isthmus",
            "num_tokens": 1,
            "initial_token": str(self.token),
            # All are new and empty: a node that fetched its part would need the others' gossip in
            # time, which a busy machine delays.
            "auto_bootstrap": False,
            "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
            "listen_address": self.address,
            "rpc_address": self.address,
            "native_transport_port": self.port,
            "storage_port": self.storage_port,
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
            "data_file_directories": [str(self.folder / "data")],
            **{
                f"{name}_directory": str(self.folder / name)
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
            **({"authenticator": "PasswordAuthenticator"} if self.asks_password else {}),
            **({} if self.tls is None else {"client_encryption_options": _encryption(self.tls)}),
            **self.settings,
        }
