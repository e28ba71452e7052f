"""Facts about the ZooKeeper and the Cassandra of a site, as far as each could be asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """Answer of one address that the mesh file names."""

    address: str
    why_not: str = ""
    """Reason why there is none; empty if there is one."""
    serves: bool = True
    """False for a member of an ensemble that knows of no majority."""


@dataclass(frozen=True, slots=True)
class ServerLogin:
    """Outcome of a login as a node of the site has it."""

    why_not: str = ""
    """Reason that the node would give; empty after a login, and where nobody was there to ask."""
    is_refused: bool = False
    """True if waiting does not help: password or rights are wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleFacts:
    """ZooKeeper ensemble of a site."""

    members: Sequence[ServerAnswer]
    login: ServerLogin = ServerLogin()
    nodes: Sequence[str] | None = None
    """Names of the site's nodes that are connected; None: unknown."""
    machines: Mapping[str, str] = field(default_factory=dict)
    """Machine of each of them that has said where it runs."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Version of Isthmus of each of them."""
    owners: Mapping[int, str] = field(default_factory=dict)
    """Name of the node that should run each slot; empty if none."""
    copies: Mapping[int, int] = field(default_factory=dict)
    """Number of present nodes whose copy of each slot has the end of the journal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraHost:
    """One of the named hosts of Cassandra."""

    address: str
    clock_ahead_s: float | None = None
    """Seconds by which the host's clock is ahead of this machine's; None: unknown."""
    commitlog_sync: str | None = None
    """Setting of the host; None: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFacts:
    """State of one slot in its site's keyspace."""

    owner: str
    """Name of the last node, or command, that took the state."""
    is_command: bool = False
    """True if no node may follow the owner."""
    row_format: int | None = None
    """Format of the owner's first row; None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFacts:
    """Cassandra of a site."""

    answers: Sequence[ServerAnswer]
    login: ServerLogin = ServerLogin()
    hosts: Sequence[CassandraHost] = ()
    """Hosts that were asked, after a login."""
    datacenters: Mapping[str, int] = field(default_factory=dict)
    """Number of Cassandra's nodes by data centre, whether named or not."""
    schemas: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Addresses of Cassandra's nodes by the version of the schema that they have."""
    replication: Mapping[str, str] | None = None
    """Replication of the site's keyspace; None: there is no such keyspace."""
    slots: Mapping[int, SlotFacts] = field(default_factory=dict)
    """State of each slot that had an owner; none where the user may not read."""
