"""Session with a site's Cassandra, set so that one frozen node delays nothing for long."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from cassandra import (
    AuthenticationFailed,
    ConsistencyLevel,
    DriverException,
    InvalidRequest,
)
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
    Session,
)
from cassandra.policies import (
    ConstantSpeculativeExecutionPolicy,
    DCAwareRoundRobinPolicy,
    TokenAwarePolicy,
    WhiteListRoundRobinPolicy,
)
from cassandra.protocol import ErrorMessage
from cassandra.query import SimpleStatement

from dedup.journal.cassandra_journal import (
    UNCERTAIN,
    CassandraJournal,
    QuorumRequests,
    is_passing,
    table_statement,
    table_statements,
)
from dedup.journal.journal import JournalAway, JournalRefused

# Its warnings repeat, in several lines for each attempt, what JournalAway tells once.
logging.getLogger("cassandra").setLevel(logging.CRITICAL)

_REQUEST_S = 5.0
_SPECULATE_AFTER_S = 0.2
"""Wait after which an idempotent request goes to another node as well: without that, each request
to a frozen node's partitions would wait until its time-out."""
_HEARTBEAT_S = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraAccess:
    """Way to the Cassandra of a site. `user` empty: without a password."""

    hosts: Sequence[tuple[str, int]]
    """Host and port of some of the nodes."""
    datacenter: str
    keyspace: str
    replication: int = 3
    user: str = ""
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None


class JournalSession:
    """Session with a site's Cassandra, for the journals of its slots and whatever else it keeps."""

    def __init__(self, access: CassandraAccess) -> None:
        """Connect, which blocks. Raises JournalAway, JournalRefused."""
        self._session = connect(access)
        self._keyspace = access.keyspace

    def journal(self, slot: int) -> CassandraJournal:
        """Return a slot's journal, which blocks. Raises JournalAway, JournalRefused."""
        with _told():
            return CassandraJournal(self._session, slot)

    def prepared(
        self, table: str, columns: str, *texts: str
    ) -> tuple[QuorumRequests, Sequence[Any]]:
        """Return requests, with these statements, to a table that is made if missing, which blocks;
        for `columns` see `table_statement`. Raises JournalAway, JournalRefused.
        """
        with _told():
            known = self._session.cluster.metadata.keyspaces[self._keyspace].tables
            if table not in known:
                self._session.execute(table_statement(self._keyspace, table, columns))
            requests = QuorumRequests(self._session)
            return requests, [requests.prepare(text) for text in texts]

    def fact(self, name: str) -> str | None:
        """Read a fact about the site, which blocks; None if there is none. Raises JournalAway,
        JournalRefused.
        """
        found = self._ask("SELECT value FROM site WHERE name = %s", name)
        return None if found is None or found.value is None else str(found.value)

    def replace_fact(self, name: str, before: str | None, after: str) -> bool:
        """Write a fact if it is still the one `before`, which blocks. Return False if not. Raises
        JournalAway, JournalRefused.
        """
        query = "UPDATE site SET value = %s WHERE name = %s IF value = %s"
        return bool(self._ask(query, after, name, before).applied)

    def _ask(self, query: str, *values: object) -> Any:
        statement = SimpleStatement(
            query,
            consistency_level=ConsistencyLevel.LOCAL_QUORUM,
            serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL,
        )
        with _told():
            return self._session.execute(statement, values).one()

    def close(self) -> None:
        self._session.cluster.shutdown()


def connect(access: CassandraAccess) -> Session:
    """Connect, which blocks, and use the keyspace, which is made with its tables if missing. Raises
    JournalAway, JournalRefused.
    """
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(access.datacenter)),
        speculative_execution_policy=ConstantSpeculativeExecutionPolicy(_SPECULATE_AFTER_S, 2),
        request_timeout=_REQUEST_S,
    )
    cluster = _cluster(access, profile)
    with ExitStack() as unless_ready, _told():
        unless_ready.callback(cluster.shutdown)
        session = cluster.connect()
        _use_keyspace(session, access)
        unless_ready.pop_all()
    return session


def _cluster(access: CassandraAccess, profile: ExecutionProfile, **more: Any) -> Cluster:
    return Cluster(
        list(access.hosts),
        # For the others, which Cassandra names without their ports.
        port=access.hosts[0][1],
        auth_provider=PlainTextAuthProvider(access.user, access.password) if access.user else None,
        ssl_context=access.tls,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        idle_heartbeat_interval=_HEARTBEAT_S,
        idle_heartbeat_timeout=_HEARTBEAT_S,
        compression=False,
        protocol_version=5,
        # Without it a small request waits for the acknowledgement of the last: 40 ms and more.
        sockopts=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        **more,
    )


class ReadingSession:
    """Session that makes nothing, and reads at each of the named hosts. `within_s` bounds each step
    of connecting, and each answer.
    """

    def __init__(self, access: CassandraAccess, within_s: float) -> None:
        """Connect, which blocks. Raises JournalAway, JournalRefused."""
        profile = ExecutionProfile(
            load_balancing_policy=WhiteListRoundRobinPolicy([host for host, _ in access.hosts]),
            request_timeout=within_s,
        )
        cluster = _cluster(
            access, profile, connect_timeout=within_s, control_connection_timeout=within_s
        )
        with ExitStack() as unless_ready, _told():
            unless_ready.callback(cluster.shutdown)
            self._session = cluster.connect(wait_for_all_pools=True)
            unless_ready.pop_all()

    @property
    def hosts(self) -> Mapping[str, Any]:
        """Connected hosts by HOST:PORT, for `begin`."""
        return {
            f"{host.endpoint.address}:{host.endpoint.port}": host
            for host in self._session.get_pool_state()
        }

    def begin(self, query: str, *values: object, host: Any = None) -> Callable[[], Sequence[Any]]:
        """Begin to read, at one host if it matters. The result blocks until the rows are there, and
        raises JournalAway, JournalRefused.
        """
        with _told():
            request = self._session.execute_async(query, values or None, host=host)

        def rows() -> Sequence[Any]:
            with _told():
                return list(request.result())

        return rows

    def close(self) -> None:
        self._session.cluster.shutdown()


@contextmanager
def _told() -> Iterator[None]:
    """Raise the driver's errors as JournalAway or JournalRefused."""
    try:
        yield
    except NoHostAvailable as error:
        reasons = error.errors.values() if isinstance(error.errors, dict) else ()
        if any(
            isinstance(reason, AuthenticationFailed) and not is_passing(reason)
            for reason in reasons
        ):
            raise JournalRefused(str(error)) from error
        raise JournalAway(str(error)) from error
    except (*UNCERTAIN, InvalidRequest) as error:
        # Also where a server has not heard yet of what another one has made just now.
        raise JournalAway(str(error)) from error
    except (DriverException, ErrorMessage) as error:
        if is_passing(error):
            raise JournalAway(str(error)) from error
        raise JournalRefused(str(error)) from error


def _use_keyspace(session: Session, access: CassandraAccess) -> None:
    # What is there is not made again: a node may lack the right to make anything.
    known = session.cluster.metadata.keyspaces
    if access.keyspace not in known:
        session.execute(
            f"CREATE KEYSPACE IF NOT EXISTS {access.keyspace} WITH replication ="
            f" {{'class': 'NetworkTopologyStrategy', '{access.datacenter}': {access.replication}}}"
        )
    tables = known[access.keyspace].tables if access.keyspace in known else {}
    for name, statement in table_statements(access.keyspace):
        if name not in tables:
            session.execute(statement)
    session.set_keyspace(access.keyspace)
