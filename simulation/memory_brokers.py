"""Brokers of a simulated mesh, and all of them as one process reaches them.

A site's broker has `apply`'s declarations, and state beyond connections. `MemoryBrokers` is the
memory twin of `Brokers`: a killed process loses its connections and gets no new ones.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from zlib import crc32

from federation.brokers.addresses import AddressBook
from federation.brokers.credentials import Credentials
from federation.brokers.provision import declarations
from federation.brokers.users import put_aside_queues
from federation.mesh import Link, Mesh
from federation.names import Names, slot_names
from relay.bulk_amqp import Connection, ConnectionFailed
from relay.content.memory_content import KeptContent
from relay.content.reference import ContentReference, id_of
from relay.delivery.local_exchange import Answer, DelivererLockHeld, LocalClosed, Outgoing
from relay.delivery.memory_exchange import MemoryBroker, MemoryExchange
from relay.links.transport.link_end import LinkConnector, LinkEnd, LinkUnreachable
from relay.links.transport.memory import MemoryEnd, MemoryLineSettings, MemoryMeeting
from relay.links.transport.rabbit import LinkEndAddress
from relay.log.memory_log import MemoryLog, MemoryStream
from relay.log.site_log import LogClosed, Record
from relay.packing.egress import EgressClosed
from relay.packing.memory_egress import MemoryEgress, MemoryEgressBroker, Returns

KILLED = "the process was killed"


def application_queue(exchange: str) -> str:
    """Return the queue of a site's application, bound to the exchange that receives deliveries."""
    return f"app.{exchange}"


@dataclass(frozen=True, slots=True)
class BrokerPace:
    """Response times of a broker, in seconds."""

    connect_s: float = 0.005
    log_confirm_s: float = 0.002
    egress_ack_s: float = 0.001
    publish_confirm_s: float = 0.001


ONE_NODE = BrokerPace()
CLUSTER = BrokerPace(egress_ack_s=0.3)
"""Pace of a cluster: a majority of slow disks must have an acknowledgement."""


@dataclass(slots=True)
class _Exchanges(MemoryBroker):
    """Exchanges that also feed their bound egress queue, whoever publishes."""

    egress: MemoryEgressBroker = field(default_factory=MemoryEgressBroker)
    egress_of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Egress queues of an exchange, one for each of its partitions."""
    arrived: Callable[[str, Outgoing], None] = lambda queue, message: None
    refused: Callable[[str, Outgoing], None] = lambda queue, message: None
    on_taken: Callable[[], None] = lambda: None

    def take(self, exchange: str, message: Outgoing) -> Answer:
        before = {queue: len(self.messages[queue]) for queue in self.exchanges.get(exchange, ())}
        answer = MemoryBroker.take(self, exchange, message)
        if answer is Answer.UNSENDABLE:
            return answer
        for queue, count in before.items():
            if len(self.messages[queue]) > count:
                self.arrived(queue, message)
            else:
                self.refused(queue, message)
        queues = self.egress_of.get(exchange)
        if queues is not None:
            queue = queues[crc32(message.routing_key) % len(queues)]
            self.egress.publish(
                queue, message.routing_key, message.body, message.properties, exchange
            )
            if answer is Answer.UNROUTED:
                answer = Answer.CONFIRMED
        self.on_taken()
        return answer


class BrokerSlot:
    """Part of a site's broker that is one slot's own: its log, and its deliverer's connections with
    their lock.
    """

    def __init__(self, site: str, slot: int, names: Names, stream: MemoryStream) -> None:
        self.name = f"{site}.s{slot}" if slot else site
        """Name of the slot's log; the first slot's has the site's."""
        self.site = site
        self.number = slot
        self.names = names
        self.stream = stream
        self.content: KeptContent | None = None
        """Content store of the site's nodes; None: they have none."""
        self.lost: dict[bytes, dict[int, tuple[bytes, float]]] = {}
        """Contents that the store has lost, by ID."""
        self.deliverers: list[MemoryExchange] = []
        self.lock_holder: MemoryExchange | None = None

    @property
    def records(self) -> list[Record]:
        """Records of the log, with the contents that are in the content store."""
        return [self._whole(record) for record in self.stream.records]

    def without_content(self) -> Iterator[ContentReference]:
        """Yield the references whose content the content store does not have."""
        for record, whole in zip(self.stream.records, self.records, strict=True):
            reference = ContentReference.decode(record.data)
            if reference is not None and reference.content_id not in self.lost:
                content = memoryview(whole.data)[len(reference.head) :]
                if id_of(content) != reference.content_id:
                    yield reference

    def _whole(self, record: Record) -> Record:
        reference = ContentReference.decode(record.data)
        if reference is None or self.content is None:
            return record
        content_id = reference.content_id
        chunks = self.content.chunks.get(content_id) or self.lost.get(content_id, {})
        content = b"".join(chunk for _, (chunk, _) in sorted(chunks.items()))
        return record._replace(data=reference.head + content)

    def fetched(self, content_id: bytes) -> bytes | None:
        """Return a content that the content store has whole, or had before it was lost."""
        kept = {} if self.content is None else self.content.living(content_id)
        for chunks in (kept, self.lost.get(content_id, {})):
            content = b"".join(chunk for _, (chunk, _) in sorted(chunks.items()))
            if chunks and id_of(content) == content_id:
                return content
        return None

    def log_digest(self) -> str:
        digest = blake2b(digest_size=16)
        for record in self.stream.records:
            digest.update(b"%d " % record.offset + record.data)
        return digest.hexdigest()


class SiteBroker:
    """Broker of one site, with a part for each of the site's slots.

    `arrived` is called with each message that comes into an application's queue, `refused` with
    each that the queue refuses. `returns` is the order in which egress hands out again, drawn from
    `chance`.
    """

    def __init__(
        self,
        mesh: Mesh,
        site: str,
        credentials: Credentials,
        arrived: Callable[[str, Outgoing], None],
        refused: Callable[[str, Outgoing], None],
        pace: BrokerPace | None = None,
        *,
        returns: Returns = Returns.FIFO,
        chance: random.Random | None = None,
    ) -> None:
        self.site = site
        self.pace = pace or (ONE_NODE if returns is Returns.FIFO else CLUSTER)
        self.slots = tuple(
            BrokerSlot(site, slot, names, MemoryStream(confirm_s=self.pace.log_confirm_s))
            for slot, names in enumerate(slot_names(mesh, site))
        )
        self.egress = MemoryEgressBroker(
            ack_s=self.pace.egress_ack_s, returns=returns, chance=chance
        )
        self.exchanges = _Exchanges(egress=self.egress, arrived=arrived, refused=refused)
        self.reachable = True
        self.swallows_confirms = False
        """True while the broker takes the deliverer's publishes and loses its answers."""
        self.slow: dict[str, float] = {}
        """Confirm time in seconds of exchanges whose queues are slow."""
        declared = declarations(mesh, site, credentials)
        for exchange in declared.exchanges:
            self.exchanges.declare(exchange.name)
        self._aside = [queue for one in self.slots for queue in put_aside_queues(one.names)]
        for queue in self._aside:
            self.exchanges.declare(queue, queue)
        for one in mesh.exchanges.values():
            if one.leaves(site):
                queues = self.exchanges.egress_of[one.name] = Names(mesh.name).egress_queues(one)
                for queue in queues:
                    self.egress.declare(queue)
        for one in mesh.exchanges.values():
            if one.delivers_to in self.exchanges.exchanges:
                self.exchanges.declare(one.delivers_to, application_queue(one.name))

    @property
    def stream(self) -> MemoryStream:
        """Log of the site's first slot."""
        return self.slots[0].stream

    def publish(self, exchange: str, message: Outgoing) -> bool:
        """Publish as an application does; return True if the broker confirmed."""
        # A full queue refuses too: else egress would take the message, and its repetition as well.
        if not self.reachable or self.exchanges.refuses(application_queue(exchange), message):
            return False
        return self.exchanges.take(exchange, message) is Answer.CONFIRMED

    @property
    def put_aside(self) -> int:
        """Number of dead letters and messages in the quarantine."""
        return sum(len(self.exchanges.messages[queue]) for queue in self._aside)

    @property
    def waiting(self) -> int:
        """Number of messages in egress queues, handed out ones included."""
        queues = chain.from_iterable(self.exchanges.egress_of.values())
        return sum(map(self.egress.depth, queues))

    async def open_exchange(self, slot: BrokerSlot) -> MemoryExchange:
        """Open the connection of a slot's deliverer, at the pace of the slowest queue. Raise
        LocalClosed, DelivererLockHeld.
        """
        await asyncio.sleep(self.pace.connect_s + max(self.slow.values(), default=0.0))
        if not self.reachable:
            raise LocalClosed("the broker cannot be reached")
        if slot.lock_holder is not None and not slot.lock_holder.closed.done():
            raise DelivererLockHeld(slot.names.deliverer_lock)
        slot.lock_holder = made = MemoryExchange(self.exchanges, self._answering)
        slot.deliverers = [one for one in slot.deliverers if not one.closed.done()]
        slot.deliverers.append(made)
        return made

    def _answering(self, exchange: str) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        answering: asyncio.Future[None] = loop.create_future()

        def answer() -> None:
            if not answering.done() and not self.swallows_confirms:
                answering.set_result(None)

        loop.call_later(self.slow.get(exchange, self.pace.publish_confirm_s), answer)
        return answering

    # Faults

    def on_step(self, call: Callable[[], None]) -> None:
        """Set the callback between an action of the broker and its answer."""
        self.exchanges.on_taken = call
        for slot in self.slots:
            slot.stream.on_stored = call

    def go_away(self) -> None:
        """Stop the broker: every connection ends and loses its frames in flight."""
        self._set_reachable(False)
        for slot in self.slots:
            slot.stream.break_connections("the broker went away")
        self.egress.break_connections("the broker went away")
        self.break_deliverer("the broker went away")

    def come_back(self) -> None:
        """Start the broker again, with all its state."""
        self._set_reachable(True)

    def _set_reachable(self, reachable: bool) -> None:
        self.reachable = self.egress.reachable = reachable
        for slot in self.slots:
            slot.stream.reachable = reachable

    def fill(self, exchange: str) -> None:
        """Fill the queue of the exchange's application: it refuses every publisher."""
        queue = application_queue(exchange)
        self.exchanges.capacity[queue] = len(self.exchanges.messages[queue])

    def make_room(self, exchange: str) -> None:
        """Make room in the queue of the exchange's application."""
        self.exchanges.capacity.pop(application_queue(exchange), None)

    def fill_beside(self, exchange: str) -> None:
        """Fill another queue of the exchange's application, which refuses its share of messages."""
        self.exchanges.beside_full.add(application_queue(exchange))

    def make_room_beside(self, exchange: str) -> None:
        """Make room in the other queue of the exchange's application."""
        self.exchanges.beside_full.discard(application_queue(exchange))

    def break_deliverer(self, reason: str) -> None:
        """Break the connection of each slot's deliverer; its unconfirmed publishes are in doubt."""
        for slot in self.slots:
            for exchange in slot.deliverers:
                exchange.break_off(reason)

    def forget_locks(self) -> None:
        """Give all locks of the site up while their connections live on, as the parts of a cut
        cluster may.
        """
        for slot in self.slots:
            slot.lock_holder = None
        self.egress.forget_locks()


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
    """Brokers as one slot of a process of `site` reaches them."""

    def __init__(self, network: Network, site: str, slot: int) -> None:
        self._network = network
        self._home = network.brokers[site]
        self._slot = self._home.slots[slot]
        self._site = site
        self._killed = False
        self.logs: list[MemoryLog] = []
        """Connections to the slot's log."""
        self._egresses: list[MemoryEgress] = []
        self._exchanges: list[MemoryExchange] = []
        self._ends: list[MemoryEnd] = []

    def kill(self) -> None:
        """Kill the process: brokers see each of its connections end."""
        self._killed = True
        self.give_up(KILLED)

    def give_up(self, reason: str) -> None:
        """End every connection of the process at its brokers."""
        self._slot.stream.drop(self.logs, reason)
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
        log = await self._slot.stream.open(mark_name=self._slot.names.deliverer_mark)
        self.logs = [one for one in self.logs if not one.ended]
        self.logs.append(log)
        return log

    async def open_egress(self, book: AddressBook, site: str) -> MemoryEgress:
        await self._connecting()
        if self._killed:
            raise EgressClosed(KILLED)
        egress = await self._home.egress.connect(self._slot.names.packer_lock)
        self._egresses = [one for one in self._egresses if not one.ended]
        self._egresses.append(egress)
        return egress

    async def open_exchange(self, book: AddressBook, site: str) -> MemoryExchange:
        if self._killed:
            raise LocalClosed(KILLED)
        exchange = await self._home.open_exchange(self._slot)
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
