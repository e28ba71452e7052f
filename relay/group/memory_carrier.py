"""Group in memory, in real or virtual time, for simulation and tests."""

from __future__ import annotations

from collections.abc import Callable

from relay.group.carrier import GroupUnreachable, OnDatagram


class MemoryGroup:
    """Network of a group. `schedule` is a function like `loop.call_later`; `delays` returns, for a
    datagram from a site to another, the delay (s) of each copy that arrives: none if it is lost.
    """

    def __init__(
        self,
        schedule: Callable[[float, Callable[[], None]], object],
        delays: Callable[[str, str], list[float]] = lambda sender, receiver: [0.0],
    ) -> None:
        self.schedule = schedule
        self.delays = delays
        self.is_there = True
        """False while no datagram can be sent or heard, as without a route."""
        self.members: dict[str, MemoryCarrier] = {}

    def join(self, site: str) -> MemoryCarrier:
        """Return the membership of a site. Raises GroupUnreachable."""
        if not self.is_there:
            raise GroupUnreachable("there is no group in memory")
        self.members[site] = MemoryCarrier(self, site)
        return self.members[site]


class MemoryCarrier:
    """`GroupCarrier` of one site."""

    def __init__(self, group: MemoryGroup, site: str) -> None:
        self._group = group
        self._site = site
        self._on_datagram: OnDatagram | None = None

    def listen(self, on_datagram: OnDatagram) -> None:
        self._on_datagram = on_datagram

    def send(self, datagram: bytes) -> None:
        group = self._group
        if not group.is_there:
            raise GroupUnreachable("there is no group in memory")
        for site, member in group.members.items():
            for delay in group.delays(self._site, site):
                group.schedule(delay, lambda member=member: member.take(datagram))  # type: ignore[misc]

    def take(self, datagram: bytes) -> None:
        """Take in a datagram that arrives."""
        if self._on_datagram is not None and self._group.is_there:
            self._on_datagram(datagram)

    def close(self) -> None:
        self._on_datagram = None
        if self._group.members.get(self._site) is self:
            del self._group.members[self._site]
