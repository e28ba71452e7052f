"""All brokers of a simulated mesh, as one process reaches them: the memory twin of `Brokers`.

A killed process loses its connections and gets no new ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from federation.brokers.addresses import AddressBook
from federation.mesh import Link, Mesh
from federation.names import Names
from relay.bulk_amqp import Connection, ConnectionFailed
from relay.delivery.local_exchange import LocalClosed
from relay.delivery.memory_exchange import MemoryExchange
from relay.links.transport.link_end import LinkConnector, LinkEnd, LinkUnreachable
from relay.links.transport.memory import MemoryEnd, MemoryLineSettings, MemoryMeeting
from relay.links.transport.rabbit import LinkEndAddress
from relay.log.memory_log import MemoryLog
from relay.log.site_log import LogClosed
from relay.packing.egress import EgressClosed
from relay.packing.memory_egress import MemoryEgress
from simulation.memory_broker import SiteBroker

KILLED = "the process was killed"


@dataclass(slots=True)
class Crossing:
    """One link, and the WAN between its ends.

    A cut is of the WAN: an end at the meeting broker's own site does not notice it.
    """

    link: Link
    meeting: MemoryMeeting
    line: MemoryLineSettings = field(default_factory=MemoryLineSettings)
    """Line of the end that is away from the meeting broker's site."""

    def cut(self) -> None:
        """Let the WAN swallow every crossing frame without a sign."""
        if self.link.meeting != self.link.sender:
            self.meeting.cut_sender = True
        if self.link.meeting != self.link.receiver:
            self.meeting.cut_receiver = True

    def mend(self) -> None:
        self.meeting.cut_sender = self.meeting.cut_receiver = False

    @property
    def is_cut(self) -> bool:
        return self.meeting.cut_sender or self.meeting.cut_receiver


class Network:
    """Brokers of the sites and the links between them; outlives all processes."""

    def __init__(self, mesh: Mesh, brokers: Mapping[str, SiteBroker], crossings: list[Crossing]):
        self.brokers = brokers
        self.crossings: dict[str, Crossing] = {}
        """Crossings by the link's name, with the meeting site for a second link of that name."""
        self._names = Names(mesh.name)
        self._by_address: dict[tuple[str, str], Crossing] = {}
        for crossing in crossings:
            self.add(crossing)

    def has(self, link: Link) -> bool:
        """True if the link has a crossing."""
        return (self._names.link_data(link), link.meeting) in self._by_address

    def add(self, crossing: Crossing) -> None:
        link = crossing.link
        name = f"{link.name} at {link.meeting}" if link.name in self.crossings else link.name
        self.crossings[name] = crossing
        self._by_address[self._names.link_data(link), link.meeting] = crossing

    def crossing(self, address: LinkEndAddress) -> Crossing:
        """Return the crossing of a link's end."""
        meeting = address.uri.rpartition("/")[2]  # the virtual host has its site's name
        data = address.hears_from if address.is_receiver else address.sends_to
        return self._by_address[data, meeting]


class MemoryBrokers:
    """Brokers as one process of `site` reaches them."""

    def __init__(self, network: Network, site: str) -> None:
        self._network = network
        self._home = network.brokers[site]
        self._site = site
        self._killed = False
        self._egresses: list[MemoryEgress] = []
        self._exchanges: list[MemoryExchange] = []
        self._ends: list[MemoryEnd] = []

    def kill(self) -> None:
        """Kill the process: brokers see each of its connections end."""
        self._killed = True
        self.give_up(KILLED)

    def give_up(self, reason: str) -> None:
        """End every connection of the process at its brokers."""
        self._home.stream.break_connections(reason)  # only this process has connections to it
        for egress in self._egresses:
            self._home.egress.drop(egress, reason)
        for exchange in self._exchanges:
            exchange.break_off(reason)
        for end in self._ends:
            end.lost(reason)

    async def open_log(self, book: AddressBook, site: str) -> MemoryLog:
        await self._connecting()
        if self._killed:
            raise LogClosed(KILLED)
        return await self._home.stream.open(mark_name=Names(book.mesh.name).deliverer_mark)

    async def open_egress(self, book: AddressBook, site: str) -> MemoryEgress:
        await self._connecting()
        if self._killed:
            raise EgressClosed(KILLED)
        egress = await self._home.egress.connect(Names(book.mesh.name).packer_lock)
        self._egresses = [one for one in self._egresses if not one.ended]
        self._egresses.append(egress)
        return egress

    async def open_exchange(self, book: AddressBook, site: str) -> MemoryExchange:
        if self._killed:
            raise LocalClosed(KILLED)
        exchange = await self._home.open_exchange()
        self._exchanges = [one for one in self._exchanges if not one.closed.done()]
        self._exchanges.append(exchange)
        return exchange

    async def connect(self, book: AddressBook, site: str, purpose: str) -> Connection:
        raise ConnectionFailed("a broker in memory speaks no AMQP: nobody can ask it that way")

    def link(self, address: LinkEndAddress) -> LinkConnector:
        return _Connector(self, address)

    def in_use(self) -> Mapping[str, str]:
        return {}  # each has a single address

    async def connect_link(self, address: LinkEndAddress) -> MemoryEnd:
        """Connect one end of a link. Raise LinkTransportError."""
        crossing = self._network.crossing(address)
        is_home = crossing.link.meeting == self._site
        line = MemoryLineSettings() if is_home else crossing.line
        await self._connecting(3 * line.delay_s)
        if self._killed or not self._network.brokers[crossing.link.meeting].reachable:
            raise LinkUnreachable(KILLED if self._killed else "the meeting broker is away")
        make = crossing.meeting.receiver_end if address.is_receiver else crossing.meeting.sender_end
        end = make(address.user, line)
        self._ends = [one for one in self._ends if not one.closed]
        self._ends.append(end)
        return end

    async def _connecting(self, more_s: float = 0.0) -> None:
        await asyncio.sleep(self._home.pace.connect_s + more_s)


@dataclass(frozen=True, slots=True)
class _Connector:
    brokers: MemoryBrokers
    address: LinkEndAddress

    async def connect(self) -> LinkEnd:
        return await self.brokers.connect_link(self.address)
