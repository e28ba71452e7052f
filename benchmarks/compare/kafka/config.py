"""Properties and command lines of Kafka's servers and of MirrorMaker 2. Pure.

What is not named stays as Kafka ships it, in its jars or in the files and scripts beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TOPIC = "orders"
GROUP = "bench"
_ONCE = "replication.factor"

_JVM = (
    *("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:MaxInlineLevel=15"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    *("-Djava.awt.headless=true", "-Dorg.apache.logging.log4j.level=WARN"),
)
"""Options that `kafka-run-class.sh` gives, but for a log of warnings only."""
_SERVER_HEAP = ("-Xms1G", "-Xmx1G")
_MIRROR_MAKER_HEAP = ("-Xms256M", "-Xmx2G")


@dataclass(frozen=True, slots=True)
class KafkaSite:
    """Server of a site: broker and controller in one process.

    `far_port` is where it listens for the other site, `line_port` what reaches that over the line.
    """

    name: str
    folder: Path
    port: int
    controller_port: int
    far_port: int
    line_port: int


def server_properties(site: KafkaSite) -> str:
    """Return the properties of a server: those of `config/server.properties`, on other ports."""
    return _properties(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": _at(site.controller_port),
            "listeners": (
                f"PLAINTEXT://{_at(site.port)},CONTROLLER://{_at(site.controller_port)},"
                f"FAR://{_at(site.far_port)}"
            ),
            "advertised.listeners": (
                f"PLAINTEXT://{_at(site.port)},CONTROLLER://{_at(site.controller_port)},"
                f"FAR://{_at(site.line_port)}"
            ),
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,FAR:PLAINTEXT"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(site.folder / "log"),
            "offsets.topic.replication.factor": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        }
    )


def mirror_maker_properties(origin: KafkaSite, destination: KafkaSite) -> str:
    """Return the properties of the MirrorMaker at a destination."""
    way, back = (
        f"{origin.name}->{destination.name}",
        f"{destination.name}->{origin.name}",
    )
    internal = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic")
    storage = ("config.storage", "offset.storage", "status.storage")
    return _properties(
        {
            "clusters": f"{origin.name}, {destination.name}",
            f"{origin.name}.bootstrap.servers": _at(origin.line_port),
            f"{destination.name}.bootstrap.servers": _at(destination.port),
            f"{way}.enabled": "true",
            f"{way}.topics": TOPIC,
            f"{back}.enabled": "false",
            _ONCE: "1",
            **{f"{name}.{_ONCE}": "1" for name in (*internal, *storage)},
        }
    )


def copied_topic(origin: str) -> str:
    """Return the name that MirrorMaker gives an origin's topic."""
    return f"{origin}.{TOPIC}"


def format_command(jars: Path, properties: Path, cluster: str) -> Sequence[str]:
    """Return the command that makes a server's folder ready."""
    options = ("format", "--standalone", "-t", cluster, "-c", str(properties))
    return _java(jars, (), "kafka.tools.StorageTool", options)


def server_command(jars: Path, properties: Path) -> Sequence[str]:
    return _java(jars, _SERVER_HEAP, "kafka.Kafka", (str(properties),))


def mirror_maker_command(jars: Path, properties: Path) -> Sequence[str]:
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    return _java(jars, _MIRROR_MAKER_HEAP, main, (str(properties),))


def _java(jars: Path, heap: Sequence[str], main: str, options: Sequence[str]) -> Sequence[str]:
    return ("java", *heap, *_JVM, "-cp", f"{jars}/*", main, *options)


def _at(port: int) -> str:
    return f"127.0.0.1:{port}"


def _properties(settings: Mapping[str, str]) -> str:
    return "".join(f"{key} = {value}\n" for key, value in settings.items())
