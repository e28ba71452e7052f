"""Survey of a site's ZooKeeper and Cassandra: what each says, as far as it lets itself be asked.

Nothing is written, and every call is bounded. Imports the servers' clients, which are extras.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC
from functools import partial
from typing import Any, TypeVar

from dedup.journal.cassandra_journal import BUCKET_ROWS
from dedup.journal.cassandra_session import CassandraAccess, ReadingSession
from dedup.journal.journal import JournalAway, JournalRefused, Owner
from dedup.journal.journal_row import format_of_row
from federation.brokers.addresses import context_of
from federation.brokers.broker_uri import parse_host_port
from isthmus.doctor.server_facts import (
    CassandraHost,
    EnsembleFacts,
    JournalFacts,
    ServerAnswer,
    ServerLogin,
    SlotFacts,
)
from isthmus.doctor.server_probe import WITHIN_S, ask_cassandra, ask_member
from relay.cluster.coordination import Coordination, CoordinationAway, CoordinationRefused
from relay.cluster.site_entries import present_members, seen_site
from relay.cluster.slot_sharing import SiteView
from relay.cluster.zookeeper import ZookeeperAccess, ZookeeperCoordination

T = TypeVar("T")

LOGIN_WITHIN_S = 3.0
_POLL_S = 0.05
_AGAIN_S = 0.5


async def ensemble_facts(access: ZookeeperAccess, slots: int) -> EnsembleFacts:
    """Ask each member, then log in where one serves. `slots` is the site's number of slots. Raises
    TlsUnusable.
    """
    tls = None if access.tls is None else context_of(access.tls)
    members = await asyncio.gather(*(ask_member(one, tls) for one in access.hosts.split(",")))
    serving = [one.address for one in members if not one.why_not and one.serves]
    if not serving:
        return EnsembleFacts(members=members)
    try:
        async with _logged_in(replace(access, hosts=",".join(serving))) as coordination:
            site = await _seen(coordination, slots, 2 * access.session_s)
            present = await present_members(coordination)
    except CoordinationRefused as error:
        return EnsembleFacts(members=members, login=ServerLogin(str(error), is_refused=True))
    except CoordinationAway as error:
        return EnsembleFacts(members=members, login=ServerLogin(str(error)))
    owners = {slot: view.owner for slot, view in site.slots.items()}
    copies = {slot: len(view.copies & site.nodes) for slot, view in site.slots.items()}
    return EnsembleFacts(
        members=members,
        nodes=sorted(site.nodes),
        machines={name: one.machine for name, one in present.items() if one.machine},
        versions={name: one.version or "an earlier one" for name, one in present.items()},
        owners=owners,
        copies=copies,
    )


@asynccontextmanager
async def _logged_in(access: ZookeeperAccess) -> AsyncIterator[ZookeeperCoordination]:
    coordination = ZookeeperCoordination(access)
    coordination.start()
    try:
        # Without a connection the first call says why there is none.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOGIN_WITHIN_S):
                while coordination.steady_since is None:
                    await asyncio.sleep(_POLL_S)
        yield coordination
    finally:
        await coordination.close()


async def _seen(coordination: Coordination, slots: int, patience_s: float) -> SiteView:
    """Return the site's entries, after takeovers that are under way."""
    loop = asyncio.get_running_loop()
    limit = loop.time() + patience_s
    while True:
        site = await seen_site(coordination, slots)
        if not site.nodes or not site.free or loop.time() >= limit:
            return site
        await asyncio.sleep(_AGAIN_S)


async def journal_facts(access: CassandraAccess) -> JournalFacts:
    """Ask each host, then log in where one answers."""
    named = [f"{host}:{port}" for host, port in access.hosts]
    answers = await asyncio.gather(*(ask_cassandra(one, access.tls) for one in named))
    there = [parse_host_port(one.address) for one in answers if not one.why_not]
    if not there:
        return JournalFacts(answers=answers)
    return await asyncio.to_thread(_read_facts, replace(access, hosts=there), answers)


def _read_facts(access: CassandraAccess, answers: Sequence[ServerAnswer]) -> JournalFacts:
    try:
        session = ReadingSession(access, WITHIN_S)
        try:
            return _facts_of(session, access.keyspace, answers)
        finally:
            session.close()
    except JournalRefused as error:
        return JournalFacts(answers=answers, login=ServerLogin(str(error), is_refused=True))
    except JournalAway as error:
        return JournalFacts(answers=answers, login=ServerLogin(str(error)))


_HERE = (
    "SELECT broadcast_address AS address, data_center, schema_version, toTimestamp(now()) AS now"
    " FROM system.local"
)
_PEERS = "SELECT peer AS address, data_center, schema_version FROM system.peers_v2"
_SYNC = "SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'"
_KEYSPACE = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = %s"


def _facts_of(
    session: ReadingSession, keyspace: str, answers: Sequence[ServerAnswer]
) -> JournalFacts:
    """Read all facts. Raises JournalAway, JournalRefused."""
    replication = session.begin(_KEYSPACE, keyspace)
    hosts: list[CassandraHost] = []
    nodes: dict[str, Any] = {}
    for address, host in session.hosts.items():
        # An answer of one host; others are of any.
        sync = session.begin(_SYNC, host=host)
        peers = session.begin(_PEERS, host=host)
        began = time.time()
        (own,) = session.begin(_HERE, host=host)()
        # Half the round trip is the best guess of when the host looked at its clock.
        ahead_s = own.now.replace(tzinfo=UTC).timestamp() - (began + time.time()) / 2
        hosts.append(
            CassandraHost(
                address=address,
                clock_ahead_s=ahead_s,
                commitlog_sync=_unless_refused(partial(_setting, sync)),
            )
        )
        nodes |= {str(one.address): one for one in peers()}
        nodes[str(own.address)] = own
    kept = replication()
    return JournalFacts(
        answers=answers,
        hosts=hosts,
        datacenters=Counter(str(one.data_center) for one in nodes.values()),
        schemas=_schemas(nodes),
        replication=dict(kept[0].replication) if kept else None,
        slots=(_unless_refused(lambda: _slots(session, keyspace)) if kept else None) or {},
    )


def _setting(rows: Callable[[], Sequence[Any]]) -> str:
    return str(rows()[0].value)


def _schemas(nodes: dict[str, Any]) -> dict[str, list[str]]:
    schemas: dict[str, list[str]] = {}
    for address, one in nodes.items():
        schemas.setdefault(str(one.schema_version), []).append(address)
    return schemas


def _slots(session: ReadingSession, keyspace: str) -> dict[int, SlotFacts]:
    owners = session.begin(f"SELECT slot, epoch, run, node, begins FROM {keyspace}.owner")()
    found: dict[int, SlotFacts] = {}
    for slot, epoch, run, node, begins in owners:
        row_format = None
        if (after := (begins or {}).get(epoch)) is not None:
            rows = session.begin(
                f"SELECT data FROM {keyspace}.journal WHERE slot = %s AND bucket = %s"
                " AND number = %s AND epoch = %s",
                *(slot, (after + 1) // BUCKET_ROWS, after + 1, epoch),
            )()
            row_format = format_of_row(rows[0].data) if rows else None
        is_command = Owner(epoch, run, node).is_command
        found[slot] = SlotFacts(owner=node, is_command=is_command, row_format=row_format)
    return found


def _unless_refused(read: Callable[[], T]) -> T | None:
    """Return what is read, or None where the user may not or the release has no such table."""
    try:
        return read()
    except (JournalRefused, JournalAway):
        return None
