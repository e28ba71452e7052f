"""Transport over two exchanges of the meeting broker: one carries data, the other acks.

Frames are transient, mandatory towards the receiver, and not confirmed: between the two logs,
everything may lose. Each end publishes as its own user, and the broker refuses a `user_id` other
than the connection's: so arriving frames prove their sender.

The receiver's queue has a fixed name and is exclusive to the connection that also sends its acks:
there is one receiver. The sender's queue has a new name each time, so that a connection which the
broker still believes in does not stand in the way of its successor. So has the receiver's where the
meeting broker is a cluster, which may keep an exclusive queue for as long as a node is away: there
the packer's lease ensures that a site has one node, and so one receiver.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field

from federation.brokers.address_ring import AddressRing
from federation.brokers.endpoint import Endpoint
from relay.bulk_amqp import (
    AuthenticationFailed,
    BulkAmqpError,
    ChannelClosed,
    Cluster,
    Connection,
    Consumer,
    Delivery,
    Publisher,
    Returned,
    connect,
)
from relay.bulk_amqp.content_header import DELIVERY_MODE, NONE_PRESENT, USER_ID, rewrite, text
from relay.bulk_amqp.paced_writer import Pace
from relay.links.transport.link_end import (
    Carried,
    LinkListener,
    LinkRefused,
    LinkTaken,
    LinkUnreachable,
    TransportStatus,
)
from relay.links.wire import HEAD_BYTES

_LOCKED = 405
_TRANSIENT = 1
_OPEN_WITHIN_S = 10.0
"""Time for declaring, binding and consuming a link's queue on a cluster, as long as for connecting:
a node of a minority answers a declaration late, or never, while another node would at once.
"""
_SLOWLY_OPEN_WITHIN_S = 40.0
"""Time for opening a link once no node was quick enough: more than RabbitMQ's own limit, 30 s."""


@dataclass(frozen=True, slots=True)
class LinkEndAddress:
    """Addresses and names by which one end of a link reaches the other. `uri` has the password."""

    uri: str = field(repr=False)
    user: str
    """User whom the connection authenticates as."""
    sends_to: str
    """Exchange to which this end publishes."""
    hears_from: str
    """Exchange to which this end's queue is bound."""
    queue: str
    """Name of the end's queue; for a sender, the beginning of the name."""
    is_receiver: bool
    queue_bytes: int
    """Capacity of the queue: two windows."""
    name: str
    """Name of the connection, which the broker displays."""
    is_cluster: bool = False
    """True if the meeting broker has several nodes."""
    heartbeat_s: int = 10
    ssl_context: ssl.SSLContext | None = None
    places: tuple[Endpoint, ...] = ()
    """Places of every node of the meeting broker's cluster; empty: the place in `uri`."""


class RabbitLinkEnd:
    """Connection of one end to the meeting broker; a `LinkEnd`."""

    def __init__(self, connection: Connection, address: LinkEndAddress) -> None:
        self._connection = connection
        self._address = address
        self._properties = rewrite(
            NONE_PRESENT, {DELIVERY_MODE: _TRANSIENT, USER_ID: address.user.encode()}
        )
        self._listener: LinkListener | None = None
        self._early: list[Carried] = []
        self._consumer: Consumer | None = None
        self._publisher: Publisher | None = None
        self._over = False
        self._watch: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Declare, bind and consume the queue. Raises what the channel raises."""
        address = self._address
        channel = await self._connection.channel()
        queue = address.queue
        if not address.is_receiver or address.is_cluster:
            queue += f".{secrets.token_hex(4)}"
        await channel.declare_queue(
            queue,
            exclusive=True,
            auto_delete=True,
            arguments={"x-max-length-bytes": address.queue_bytes},
        )
        await channel.bind_queue(queue, address.hears_from, "")
        self._consumer = Consumer(channel, queue, self._on_deliveries, on_ended=self._on_ended)
        # The link acknowledges by itself, and the queue goes with its connection.
        await self._consumer.start(prefetch=0, no_ack=True)
        self._publisher = Publisher(channel, confirms=False, on_returned=self._on_returned)
        await self._publisher.start()
        self._watch = asyncio.create_task(self._until_closed(), name=f"{address.name}: watch")

    @property
    def status(self) -> TransportStatus:
        connection = self._connection
        return TransportStatus(
            connection.bytes_taken,
            connection.bytes_waiting,
            connection.blocked is not None,
            connection.is_held_back,
        )

    def pace(self, pace: Pace) -> None:
        if self._connection.close_reason is None:
            self._connection.pace(pace)

    def listen(self, listener: LinkListener) -> None:
        self._listener = listener
        early, self._early = self._early, []
        if early:
            listener.on_frames(early)
        if self._over:
            # The connection broke before: the listener would wait for ever.
            asyncio.get_running_loop().call_soon(self._notify_closed)

    def send(self, frame: bytes) -> None:
        if self._over or self._publisher is None:
            return
        message = (self._address.sends_to, b"", self._properties, frame)
        try:
            self._publisher.publish_many([message], mandatory=not self._address.is_receiver)
        except BulkAmqpError as error:
            self._connection.abort(str(error))

    def abort(self, reason: str) -> None:
        self._connection.abort(reason)

    async def close(self) -> None:
        if self._connection.is_held_back:
            # A close in good order would wait for all that is held back.
            self._connection.abort("closed")
        await self._connection.close(timeout=2.0)
        if self._watch is not None:
            await self._watch

    def _on_deliveries(self, deliveries: Sequence[Delivery]) -> None:
        frames = [
            Carried((text(properties, USER_ID) or b"").decode(errors="replace"), body)
            for _, _, _, _, properties, body in deliveries
        ]
        if self._listener is None:
            self._early += frames
        else:
            self._listener.on_frames(frames)

    def _on_ended(self, error: BulkAmqpError) -> None:
        # The queue was deleted, or the channel closed: nothing will arrive any more.
        self._connection.abort(f"the link's queue is gone: {error}")

    def _on_returned(self, sequence: int, returned: Returned) -> None:
        if self._listener is not None:
            self._listener.on_returned(returned.body[:HEAD_BYTES])

    async def _until_closed(self) -> None:
        await self._connection.wait_closed()
        self._over = True
        self._notify_closed()

    def _notify_closed(self) -> None:
        if self._listener is not None:
            self._listener.on_closed(str(self._connection.close_reason))


class RabbitLinkConnector:
    """Maker of one end's connections. `ring`: order of the meeting broker's nodes."""

    def __init__(self, address: LinkEndAddress, ring: AddressRing[Endpoint] | None = None) -> None:
        self._address = address
        self._ring = ring
        self._slow_nodes = 0
        """Number of connections in a row on which the link was not open in time."""

    async def connect(self) -> RabbitLinkEnd:
        """Return a new connection. Raises LinkUnreachable, LinkRefused, LinkTaken."""
        address = self._address
        places = address.places
        try:
            connection = await connect(
                Cluster.of(address.uri, places, self._ring) if places else address.uri,
                name=address.name,
                heartbeat=address.heartbeat_s,
                ssl_context=address.ssl_context,
            )
        except AuthenticationFailed as error:
            raise LinkRefused(str(error)) from error
        except (BulkAmqpError, OSError) as error:
            raise LinkUnreachable(str(error)) from error
        end = RabbitLinkEnd(connection, address)
        with contextlib.ExitStack() as unless_open:
            unless_open.callback(connection.abort, "the link could not be opened")
            within_s = self._open_within_s
            try:
                async with asyncio.timeout(within_s):
                    await end.open()
            except TimeoutError as error:
                self._slow_nodes += 1
                reason = f"{connection.address} declared no link within {within_s:g} s"
                raise LinkUnreachable(reason) from error
            except ChannelClosed as error:
                if error.code == _LOCKED:
                    raise LinkTaken(f"another receiver holds {address.queue!r}") from error
                raise LinkRefused(str(error)) from error
            except BulkAmqpError as error:
                raise LinkUnreachable(str(error)) from error
            unless_open.pop_all()
        self._slow_nodes = 0
        return end

    @property
    def _open_within_s(self) -> float | None:
        if not self._address.is_cluster:
            return None
        is_quick = self._slow_nodes < max(1, len(self._address.places))
        return _OPEN_WITHIN_S if is_quick else _SLOWLY_OPEN_WITHIN_S
