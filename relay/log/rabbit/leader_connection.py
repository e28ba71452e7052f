"""Connection to a stream's leader: log in at a node that answers, ask for the leader, go there.

`leader_search` picks the endpoints to try.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from federation.brokers.address_ring import AddressRing
from federation.brokers.addresses import StreamAddress
from federation.brokers.endpoint import Endpoint, resolved
from federation.brokers.first_answer import NoneAnswered, first_answer
from relay.log.rabbit.leader_search import LeaderSearch
from relay.log.rabbit.stream_connection import (
    PUBLISHER,
    RSTREAM_FAILURES,
    StreamConnection,
    as_log_error,
    is_leaderless,
    log_in,
)
from relay.log.site_log import LogClosed, LogMissing, LogRefused, SiteLogError

_ONE_NODE_S = 6.0
"""Time for a node in the search for the leader; the deadline is for all nodes."""


async def open_connection(
    address: StreamAddress,
    stream: str,
    *,
    heartbeat_s: int,
    name: str,
    deadline_s: float,
    ring: AddressRing[Endpoint] | None = None,
) -> StreamConnection:
    """Connect to the stream's leader and declare the publisher; `ring` has the order in which the
    cluster's nodes are asked for the leader. Raises as `open_rabbit_log`.
    """
    ring = ring or AddressRing()
    search = _Search(address, stream, heartbeat_s, name)
    try:
        async with asyncio.timeout(deadline_s):
            endpoints = ring.order(await resolved(address.endpoints))
            with contextlib.ExitStack() as unless_open:
                connection = await search.leader(endpoints)
                unless_open.callback(connection.abort, "could not open the log")
                await connection.declare_publisher(stream, "", PUBLISHER)
                unless_open.pop_all()
    except TimeoutError as error:
        raise LogClosed(f"no connection to {address.where}: {search.why_none}") from error
    except RSTREAM_FAILURES as error:
        raise as_log_error(error, address, stream) from error
    # The node asked first next time need not lead the log; and a leader that was given up would
    # still claim to lead, if it is cut off from the others.
    ring.worked(connection.endpoint, lambda: 0.0 if connection.is_over else None)
    return connection


class _Met(NamedTuple):
    """A connection to a node, and the stream's leader by the node's knowledge."""

    connection: StreamConnection
    leader: Endpoint

    @property
    def is_leader(self) -> bool:
        # By the broker's own name for itself: the address that we dialled may be a proxy's.
        return (self.leader.host, self.leader.port) == self.connection.advertised

    def drop(self) -> None:
        self.connection.abort("not the stream's leader, or not needed any more")


class _Search:
    """Search for a connection to the stream's leader, by way of whichever node answers."""

    def __init__(self, address: StreamAddress, stream: str, heartbeat_s: int, name: str) -> None:
        self.why_none = "no answer in time"
        """Reason why the leader was not met so far."""
        self._leaderless: set[Endpoint] = set()
        """Nodes by whose answer the stream has no leader now."""
        self._why_unusable: dict[Endpoint, str] = {}
        """Reasons by address that a leader advertises or that was tried for a leader."""
        self._address = address
        self._stream = stream
        self._heartbeat_s = heartbeat_s
        self._name = name

    async def leader(self, endpoints: Sequence[Endpoint]) -> StreamConnection:
        """Connect to the leader, trying `endpoints` in order. Raises SiteLogError."""
        met = await self._any_node(endpoints)
        search = LeaderSearch(endpoints)
        while not met.is_leader:
            met.drop()
            search.met(met.connection.endpoint)
            self._not_met(met.leader)
            met = await self._next(search, met.leader)
        if 2 * len(self._leaderless) > len(endpoints):
            # Cut off from the others, which elect another leader, the node can confirm nothing.
            met.drop()
            raise LogClosed(
                f"{met.leader} says that it leads stream {self._stream!r}, and most nodes that "
                "there is no leader"
            )
        return met.connection

    async def _any_node(self, endpoints: Sequence[Endpoint]) -> _Met:
        try:
            _, met = await first_answer(endpoints, self._meet, _Met.drop, (SiteLogError,))
        except NoneAnswered as none:
            errors = list(none.errors.values())
            if len(errors) == 1:
                raise errors[0] from none
            raise _kind_of(errors)("; ".join(map(str, errors))) from none
        return met

    async def _next(self, search: LeaderSearch, leader: Endpoint) -> _Met:
        """Meet the next node of the search; raises LogClosed when none is left."""
        while (endpoint := search.next((leader.host, leader.port))) is not None:
            try:
                async with asyncio.timeout(_ONE_NODE_S):
                    return await self._meet(endpoint)
            except (SiteLogError, TimeoutError) as error:
                search.failed(endpoint)
                self._why_unusable[endpoint._replace(ip="")] = str(error) or "no answer in time"
                self._not_met(leader)
        raise LogClosed(
            f"{self.why_none}; let each node advertise what can be reached from here "
            "(stream.advertised_host, stream.advertised_port), or name all nodes in `stream:`"
        )

    def _not_met(self, leader: Endpoint) -> None:
        why = self._why_unusable.get(leader, "")
        self.why_none = f"the stream's leader, which advertises {leader}, was not met"
        if why:
            self.why_none += f": {why}"

    async def _meet(self, endpoint: Endpoint) -> _Met:
        """Log in at a node and ask for the leader. Raises SiteLogError."""
        try:
            with contextlib.ExitStack() as unless_met:
                connection = StreamConnection(
                    self._address, self._heartbeat_s, self._name, endpoint
                )
                unless_met.callback(connection.abort, "could not open the log")
                await log_in(connection, self._address)
                leader, _ = await connection.query_leader_and_replicas(self._stream)
                unless_met.pop_all()
        except RSTREAM_FAILURES as error:
            if is_leaderless(error):
                self._leaderless.add(endpoint)
            here = replace(self._address, host=endpoint.host, port=endpoint.port, others=())
            raise as_log_error(error, here, self._stream) from error
        return _Met(connection, Endpoint(leader.host, leader.port))


def _kind_of(errors: Sequence[Exception]) -> type[SiteLogError]:
    """Kind of error for several nodes' errors. A log is missing only if all nodes report that."""
    if any(isinstance(error, LogRefused) for error in errors):
        return LogRefused
    return LogMissing if all(isinstance(error, LogMissing) for error in errors) else LogClosed
