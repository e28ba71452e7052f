"""Search for a stream's leader: which place to try next. Pure.

A broker names the leader by the host and port that its node advertises, and calls itself by those
it advertises too: equal, and the connection is at the leader. A node is tried at its configured
address, if that is the advertised one, then at the advertised address itself, then at all others:
behind a port forward or NAT nobody can dial what is advertised, and behind a load balancer the
same address leads to another node each time.

A replica's connection would do for neither side: what a replica has may end before what the leader
has confirmed, and a log that ends early has lost its tail.
"""

from __future__ import annotations

from collections.abc import Sequence

from federation.brokers.endpoint import Endpoint

MEETINGS = 6
"""How many connections, over all configured addresses, may lead to other nodes than the leader: a
load balancer that picks one of three by chance has led to the leader by then in 91 of 100 cases,
one that takes turns always."""
Advertised = tuple[str, int]


class LeaderSearch:
    """One search, after a first connection that was not at the leader. `places` are configured."""

    def __init__(self, places: Sequence[Endpoint]) -> None:
        self._places = places
        self._most = max(1, MEETINGS // max(1, len(places)))
        self._tried: dict[Endpoint, int] = {}

    def met(self, place: Endpoint) -> None:
        """A node that is not the leader answered there."""
        self._tried[place] = self._tried.get(place, 0) + 1

    def failed(self, place: Endpoint) -> None:
        """Nobody answered there, or not in time: once is enough."""
        self._tried[place] = self._most

    def next(self, leader: Advertised) -> Endpoint | None:
        """Endpoint to try next, with the leader at `leader` as far as is known; None: give up."""
        named = [place for place in self._places if (place.host, place.port) == leader]
        for place in named or [Endpoint(*leader)]:
            if not self._tried.get(place):
                return place
        least = min(self._places, key=lambda place: self._tried.get(place, 0), default=None)
        if least is None or self._tried.get(least, 0) >= self._most:
            return None
        return least
