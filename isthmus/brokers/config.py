"""Specification of a private broker, and RabbitMQ's files and environment made from it.

Pure: values in, text out. `local_brokers` writes the files and runs the node.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from federation.brokers.users import password_hash
from isthmus.brokers.installation import RabbitMQInstallation

LOOPBACK = "127.0.0.1"
NET_TICK_S = 60
"""Erlang's default."""
PLUGINS = ("rabbitmq_management", "rabbitmq_stream", "rabbitmq_sharding")

_KHEPRI_ONLY = (4, 3)
"""First release in which a minority takes no changes, whatever the settings."""
_DISCOVERY_RETRIES = 7200
"""Retries for an hour: starting gives up long before, and a node that gave up alone would found a
second cluster.
"""

# The node resolves its own name without asking anyone: a bare chroot may have no /etc/hosts.
ERLANG_RESOLVER = """\
{host, {127,0,0,1}, ["localhost"]}.
{lookup, [file, native]}.
"""


@dataclass(frozen=True, slots=True)
class BrokerUser:
    """A user of a private broker, with the same permissions (regexes) in every virtual host."""

    name: str
    password: str
    tags: tuple[str, ...] = ()
    configure: str = ".*"
    write: str = ".*"
    read: str = ".*"


@dataclass(frozen=True, slots=True)
class ClusterPeers:
    """Cluster of a private broker: all node names, the founder's first, and the shared cookie."""

    node_names: tuple[str, ...]
    cookie: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class BrokerSpec:
    """Specification of one private broker.

    `folder` holds all files of the broker and nothing else. `schedulers` is the number of cores of
    the Erlang machine. `host` is the address of all listeners, `namespace` the network namespace
    (`ip netns`) with the address, empty for the caller's. A silent node counts as down after
    `net_tick_s`, give or take a quarter.
    """

    name: str
    folder: Path
    amqp_port: int
    stream_port: int
    management_port: int
    dist_port: int
    epmd_port: int
    vhosts: tuple[str, ...] = ("/",)
    users: tuple[BrokerUser, ...] = ()
    schedulers: int = 1
    plugins: tuple[str, ...] = PLUGINS
    peers: ClusterPeers | None = None
    host: str = LOOPBACK
    namespace: str = ""
    net_tick_s: int = NET_TICK_S

    def __post_init__(self) -> None:
        if self.schedulers < 1:
            raise ValueError(f"schedulers must be at least 1, not {self.schedulers}")
        if not self.name:
            raise ValueError("a broker needs a name")

    @property
    def node_name(self) -> str:
        """Name of the Erlang node: part of the stored data, so no port may be in it."""
        host = "localhost" if self.host == LOOPBACK else self.host
        return f"{re.sub(r'[^A-Za-z0-9_-]', '_', self.name)}@{host}"

    @property
    def control(self) -> str:
        """Beginning of an administrator's shell command on this machine."""
        cookie = shlex.quote(str(self.folder.absolute() / ".erlang.cookie"))
        return (
            f"ERL_EPMD_PORT={self.epmd_port} rabbitmqctl -n {self.node_name} "
            f'--erlang-cookie "$(cat {cookie})"'
        )

    @property
    def management_url(self) -> str:
        """Base of the management HTTP API, without /api and credentials."""
        return f"http://{self.host}:{self.management_port}"

    @property
    def log_file(self) -> Path:
        return self.folder / "log" / "rabbit.log"

    def amqp_uri(self, user: BrokerUser, vhost: str = "/") -> str:
        """Return the AMQP address of a user, with password."""
        who = f"{quote(user.name, safe='')}:{quote(user.password, safe='')}"
        return f"amqp://{who}@{self.host}:{self.amqp_port}/{quote(vhost, safe='')}"


def rabbitmq_conf(spec: BrokerSpec, seen_as: Path, release: tuple[int, ...]) -> str:
    """Render rabbitmq.conf for a release; `seen_as` is the broker's folder from the server's
    side.
    """
    settings: dict[str, object] = {
        "listeners.tcp.1": f"{spec.host}:{spec.amqp_port}",
        "stream.listeners.tcp.1": f"{spec.host}:{spec.stream_port}",
        "stream.advertised_host": spec.host,
        "stream.advertised_port": spec.stream_port,
        "management.tcp.ip": spec.host,
        "management.tcp.port": spec.management_port,
        "load_definitions": seen_as / "definitions.json",
        # Nobody but this machine reaches the listeners, so no user is bound to loopback again.
        "loopback_users": "none",
        "log.console": "false",
        "log.file": "rabbit.log",
        "log.file.level": "info",
        "log.file.rotation.size": 10 * 2**20,
        "log.file.rotation.count": 2,
        # Absolute: on a nearly full disk a small mesh still works, and stops before it is full.
        "disk_free_limit.absolute": "50MB",
        "vm_memory_high_watermark.relative": 0.4,
        # By default quorum queues keep up to 512 MB in memory before they write segments.
        "raft.wal_max_size_bytes": 64 * 2**20,
        **(_cluster_settings(spec, spec.peers, release) if spec.peers is not None else {}),
    }
    return "".join(f"{key} = {value}\n" for key, value in settings.items())


def _cluster_settings(
    spec: BrokerSpec, peers: ClusterPeers, release: tuple[int, ...]
) -> dict[str, object]:
    """Return settings by which each node joins the founder, for which all others wait.

    Nodes must not elect a founder: older releases found a cluster each when they reach no other
    node, and newer ones wait for the node that began first.
    """
    founder = peers.node_names[0]
    known = () if spec.node_name == founder else (founder, spec.node_name)
    settings: dict[str, object] = {
        "cluster_formation.peer_discovery_backend": "classic_config",
        "cluster_formation.discovery_retry_limit": _DISCOVERY_RETRIES,
        "cluster_formation.discovery_retry_interval": 500,
    }
    for number, node in enumerate(known, start=1):
        settings[f"cluster_formation.classic_config.nodes.{number}"] = node
    if release < _KHEPRI_ONLY:
        settings["cluster_partition_handling"] = "pause_minority"
    return settings


def definitions(spec: BrokerSpec, salt: Callable[[int], bytes]) -> str:
    """Render the definitions imported at each boot: virtual hosts, users, permissions.

    `salt` returns random bytes. Passwords are written only as salted hashes.
    """
    return json.dumps(
        {
            "vhosts": [{"name": vhost} for vhost in spec.vhosts],
            "users": [
                {
                    "name": user.name,
                    "password_hash": password_hash(user.password, salt(4)),
                    "hashing_algorithm": "rabbit_password_hashing_sha256",
                    "tags": ",".join(user.tags),
                }
                for user in spec.users
            ],
            "permissions": [
                {
                    "user": user.name,
                    "vhost": vhost,
                    "configure": user.configure,
                    "write": user.write,
                    "read": user.read,
                }
                for user in spec.users
                for vhost in spec.vhosts
            ],
        },
        indent=1,
    )


def enabled_plugins(plugins: tuple[str, ...] = PLUGINS) -> str:
    """Render the enabled_plugins file: an Erlang list."""
    return f"[{','.join(plugins)}].\n"


def environment(
    spec: BrokerSpec, installation: RabbitMQInstallation, base: Mapping[str, str]
) -> dict[str, str]:
    """Return the whole environment of the node's processes.

    Neither /etc/rabbitmq nor the caller's RABBITMQ_* take part; of `base`, the caller's
    environment, only language and time zone are passed on.
    """
    folder = installation.path_inside(spec.folder)
    schedulers = f"+S {spec.schedulers}:{spec.schedulers}"
    passed_on = {key: base[key] for key in ("LANG", "LC_ALL", "TZ") if key in base}
    return {
        "LANG": "C.UTF-8",
        **passed_on,
        "PATH": installation.search_path(),
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(spec.epmd_port),
        "ERL_EPMD_ADDRESS": spec.host,
        "ERL_INETRC": str(folder / "inetrc"),
        # No crash dumps: they hold the whole memory, with messages and passwords.
        "ERL_CRASH_DUMP_SECONDS": "0",
        # The start script then becomes the Erlang machine by exec, instead of waiting for it:
        # the PID we spawned is the node's.
        "RUNNING_UNDER_SYSTEMD": "true",
        "RABBITMQ_NODENAME": spec.node_name,
        **({} if spec.host == LOOPBACK else {"RABBITMQ_USE_LONGNAME": "true"}),
        "RABBITMQ_DIST_PORT": str(spec.dist_port),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_MNESIA_DIR": str(folder / "data" / "node"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_CONFIG_FILES": str(folder / "conf.d"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "data" / "config"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_PLUGINS_DIR": str(folder / "plugins"),
        # No busy waiting: many brokers share few cores here.
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
            f"{schedulers} +sbwt none +sbwtdcpu none +sbwtdio none "
            f"-kernel net_ticktime {spec.net_tick_s} "
            f"-kernel inet_dist_use_interface {{{spec.host.replace('.', ',')}}}"
        ),
    }
