"""One site's broker in memory: `apply`'s declarations, and state beyond connections."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

from federation.brokers.credentials import Credentials
from federation.brokers.provision import declarations
from federation.brokers.users import put_aside_queues
from federation.mesh import Mesh
from federation.names import Names
from relay.delivery.local_exchange import Answer, DelivererLockHeld, LocalClosed, Outgoing
from relay.delivery.memory_exchange import MemoryBroker, MemoryExchange
from relay.log.memory_log import MemoryStream
from relay.packing.memory_egress import MemoryEgressBroker, Returns


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
    egress_of: dict[str, str] = field(default_factory=dict)
    arrived: Callable[[str, Outgoing], None] = lambda queue, message: None
    on_taken: Callable[[], None] = lambda: None

    def take(self, exchange: str, message: Outgoing) -> Answer:
        before = {queue: len(self.messages[queue]) for queue in self.exchanges.get(exchange, ())}
        answer = MemoryBroker.take(self, exchange, message)
        if answer is Answer.UNSENDABLE:
            return answer
        for queue, count in before.items():
            if len(self.messages[queue]) > count:
                self.arrived(queue, message)
        egress = self.egress_of.get(exchange)
        if egress is not None:
            self.egress.publish(
                egress, message.routing_key, message.body, message.properties, exchange
            )
            if answer is Answer.UNROUTED:
                answer = Answer.CONFIRMED
        self.on_taken()
        return answer


class SiteBroker:
    """Broker of one site.

    `arrived` is called with each message that comes into an application's queue. `returns` is the
    order in which egress hands out again, drawn from `chance`.
    """

    def __init__(
        self,
        mesh: Mesh,
        site: str,
        credentials: Credentials,
        arrived: Callable[[str, Outgoing], None],
        pace: BrokerPace | None = None,
        *,
        returns: Returns = Returns.FIFO,
        chance: random.Random | None = None,
    ) -> None:
        self.site = site
        self.pace = pace or (ONE_NODE if returns is Returns.FIFO else CLUSTER)
        self.stream = MemoryStream(confirm_s=self.pace.log_confirm_s)
        self.egress = MemoryEgressBroker(
            ack_s=self.pace.egress_ack_s, returns=returns, chance=chance
        )
        self.exchanges = _Exchanges(egress=self.egress, arrived=arrived)
        self.reachable = True
        self.swallows_confirms = False
        """True while the broker takes the deliverer's publishes and loses its answers."""
        self.slow: dict[str, float] = {}
        """Confirm time in seconds of exchanges whose queues are slow."""
        self._deliverer: MemoryExchange | None = None
        self._names = Names(mesh.name)
        declared = declarations(mesh, site, credentials)
        for exchange in declared.exchanges:
            self.exchanges.declare(exchange.name)
        aside = put_aside_queues(self._names)
        for queue in aside:
            self.exchanges.declare(queue, queue)
        for binding in declared.bindings:
            if binding.queue not in aside:
                self.egress.declare(binding.queue)
                self.exchanges.egress_of[binding.exchange] = binding.queue
        for one in mesh.exchanges.values():
            if one.delivers_to in self.exchanges.exchanges:
                self.exchanges.declare(one.delivers_to, application_queue(one.name))

    def publish(self, exchange: str, message: Outgoing) -> bool:
        """Publish as an application does; return True if the broker confirmed."""
        # A full queue refuses too: else egress would take the message, and its repetition as well.
        if not self.reachable or application_queue(exchange) in self.exchanges.capacity:
            return False
        return self.exchanges.take(exchange, message) is Answer.CONFIRMED

    @property
    def put_aside(self) -> int:
        """Number of dead letters and messages in the quarantine."""
        messages = self.exchanges.messages
        return len(messages[self._names.dead_letters]) + len(messages[self._names.quarantine])

    @property
    def waiting(self) -> int:
        """Number of messages in egress queues, handed out ones included."""
        return sum(map(self.egress.depth, self.exchanges.egress_of.values()))

    def log_digest(self) -> str:
        """Return a digest of the whole log."""
        digest = blake2b(digest_size=16)
        for record in self.stream.records:
            digest.update(b"%d " % record.offset + record.data)
        return digest.hexdigest()

    async def open_exchange(self) -> MemoryExchange:
        """Open the deliverer's connection. Raise LocalClosed, DelivererLockHeld."""
        await asyncio.sleep(self.pace.connect_s)
        if not self.reachable:
            raise LocalClosed("the broker cannot be reached")
        if self._deliverer is not None and not self._deliverer.closed.done():
            raise DelivererLockHeld(self._names.deliverer_lock)
        self._deliverer = MemoryExchange(self.exchanges, self._answering)
        return self._deliverer

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
        self.exchanges.on_taken = self.stream.on_stored = call

    def go_away(self) -> None:
        """Stop the broker: every connection ends and loses its frames in flight."""
        self.reachable = self.stream.reachable = self.egress.reachable = False
        self.stream.break_connections("the broker went away")
        self.egress.break_connections("the broker went away")
        self.break_deliverer("the broker went away")

    def come_back(self) -> None:
        """Start the broker again, with all its state."""
        self.reachable = self.stream.reachable = self.egress.reachable = True

    def fill(self, exchange: str) -> None:
        """Fill the queue of the exchange's application: it refuses every publisher."""
        queue = application_queue(exchange)
        self.exchanges.capacity[queue] = len(self.exchanges.messages[queue])

    def make_room(self, exchange: str) -> None:
        """Make room in the queue of the exchange's application."""
        self.exchanges.capacity.pop(application_queue(exchange), None)

    def break_deliverer(self, reason: str) -> None:
        """Break the deliverer's connection; its unconfirmed publishes are in doubt."""
        if self._deliverer is not None:
            self._deliverer.break_off(reason)
