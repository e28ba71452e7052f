"""Search for a stream's leader: which endpoint to try next. Pure.

A broker names the leader by the host and port that the leader's node advertises, and itself by its
own advertised ones: if equal, the connection is at the leader. A node is tried at its configured
address, if advertised, then at the advertised address itself, then at all others: behind a port
forward or NAT nobody can dial the advertised address, and behind a load balancer an address leads
to another node each time.

A replica's connection would serve neither reading nor writing: a replica's data may end before what
the leader has confirmed, and a log that ends early has lost its tail.
"""

from __future__ import annotations

from collections.abc import Sequence

from federation.brokers.endpoint import Endpoint

MEETINGS = 6
"""Most connections, over all configured addresses, to other nodes than the leader: a load balancer
that picks among three by chance has led to the leader by then in 91 of 100 cases, a balancer that
takes turns always."""
Advertised = tuple[str, int]


class LeaderSearch:
    """A search, after a first connection that was not at the leader. `endpoints` are the configured
    ones.
    """

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = endpoints
        self._most = max(1, MEETINGS // max(1, len(endpoints)))
        self._tried: dict[Endpoint, int] = {}

    def met(self, endpoint: Endpoint) -> None:
        """Note that a node other than the leader answered there."""
        self._tried[endpoint] = self._tried.get(endpoint, 0) + 1

    def failed(self, endpoint: Endpoint) -> None:
        """Note that nobody answered there in time: a single try is enough."""
        self._tried[endpoint] = self._most

    def next(self, leader: Advertised) -> Endpoint | None:
        """Endpoint to try next, or None to give up. `leader` is the one known last."""
        named = [
            endpoint for endpoint in self._endpoints if (endpoint.host, endpoint.port) == leader
        ]
        for endpoint in named or [Endpoint(*leader)]:
            if not self._tried.get(endpoint):
                return endpoint
        least = min(
            self._endpoints, key=lambda endpoint: self._tried.get(endpoint, 0), default=None
        )
        if least is None or self._tried.get(least, 0) >= self._most:
            return None
        return least
