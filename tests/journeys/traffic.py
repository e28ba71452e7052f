"""Applications of the journeys: confirmed publishers and counting consumers, on the bulk path."""

from __future__ import annotations

import asyncio
import random
import ssl
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence

from relay.bulk_amqp import (
    BulkAmqpError,
    Cluster,
    Connection,
    Consumer,
    Delivery,
    Message,
    Publisher,
    connect,
)
from relay.bulk_amqp.content_header import (
    DELIVERY_MODE,
    MESSAGE_ID,
    NONE_PRESENT,
    PRIORITY,
    header,
    rewrite,
)
from relay.bulk_amqp.field_table import entry, long_integer, long_string
from simulation.invariants import Arrived
from tests.live_brokers import START_WITHIN_S
from tests.waiting import until

CHUNK = 100
BIG = 512
"""Bytes; larger bodies do not compress."""
BACK_WITHIN_S = 2 * START_WITHIN_S
"""A broker that is gone for longer has been forgotten by the test that ended it."""
AGAIN_AFTER_S = 0.2
_NAMESPACE = uuid.UUID(int=1)


def message_id(origin: str, number: int) -> str:
    return str(uuid.uuid5(_NAMESPACE, f"{origin}/{number}"))


def properties(
    origin: str, number: int, *, with_id: bool = True, priority: int | None = None, label: str = ""
) -> bytes:
    """Make the properties of a persistent message that has its origin and number in the headers.
    `label` is a message ID in place of a UUID.
    """
    fields = entry(b"origin", long_string(origin.encode())) + entry(b"number", long_integer(number))
    changes: dict[int, bytes | int | None] = {DELIVERY_MODE: 2}
    if label or with_id:
        changes[MESSAGE_ID] = (label or message_id(origin, number)).encode()
    if priority is not None:
        changes[PRIORITY] = priority
    return rewrite(NONE_PRESENT, changes, fields)


def alike(origin: str) -> tuple[bytes, bytes]:
    """Properties and body of a message that is the same each time."""
    fields = entry(b"origin", long_string(origin.encode()))
    return rewrite(NONE_PRESENT, {DELIVERY_MODE: 2}, fields), b"alike"


def _body(origin: str, number: int, size: int) -> bytes:
    said = f"{origin}/{number} ".encode()
    if size <= BIG:
        return said.ljust(size, b".")
    return said + random.Random(said).randbytes(size - len(said))


class TrafficSource:
    """Publishes numbered messages at one site; `confirmed` has the bodies the broker took. `key` is
    that of all, or tells each one's by its number.
    """

    def __init__(
        self,
        uri: str | Cluster,
        origin: str,
        exchange: str = "orders",
        key: bytes | Callable[[int], bytes] = b"order.new",
    ) -> None:
        self.origin = origin
        self.confirmed: dict[int, bytes] = {}
        self.indeterminate: dict[int, bytes] = {}
        """Sent, and never answered, or refused: may arrive or not."""
        self.refused: set[int] = set()
        """Those of them that the broker refused: one of the queues did, others may have them."""
        self._uri = uri
        self.ssl_context: ssl.SSLContext | None = None
        self._exchange = exchange
        self._key_of = key if callable(key) else lambda number: key
        self._next = 0

    async def publish(
        self,
        count: int,
        *,
        size: int = 64,
        per_second: float = 0.0,
        with_id: bool = True,
        label: Callable[[int], str] | None = None,
        priority: Callable[[int], int] | None = None,
        is_alike: bool = False,
        again_after_failure: bool = False,
        chunk: int = CHUNK,
        going: Callable[[], bool] = lambda: True,
    ) -> None:
        """Publish so many more; returns when all are confirmed, and not before their time at
        `per_second` is over, or when they no longer are `going`. Time that was lost is not caught
        up on. Big bodies are noise, so that they fill a line as they fill a log. `priority` gives
        each message's by its number, `label` a message ID in place of a UUID; `is_alike`: nothing
        tells one message from the other.

        With `again_after_failure`, what was not answered when a connection broke stays
        indeterminate and the rest goes on over a new one.
        """
        end = self._next + count
        loop = asyncio.get_running_loop()
        due = loop.time()
        while self._next < end and going():
            connection = await (self._reconnect() if again_after_failure else self._connect())
            try:
                publisher = Publisher(await connection.channel())
                await publisher.start()
                while self._next < end and going():
                    count = min(chunk, end - self._next)
                    numbers = range(self._next, self._next + count)
                    if is_alike:
                        made = [alike(self.origin)] * count
                    else:
                        made = [self._made(n, size, with_id, priority, label) for n in numbers]
                    whole = await self._chunk(publisher, numbers, made)
                    if per_second:  # behind it: calls of less than a chunk have their rate too
                        due = max(due + count / per_second, loop.time())
                        await asyncio.sleep(due - loop.time())
                    if not whole:
                        break
            except BulkAmqpError:
                if not again_after_failure:
                    raise
            finally:
                await connection.close()
            if self._next < end and going() and not again_after_failure:
                raise ConnectionError(f"publishing at {self.origin} was cut short")

    async def _connect(self) -> Connection:
        return await connect(self._uri, name=f"source {self.origin}", ssl_context=self.ssl_context)

    async def _reconnect(self) -> Connection:
        failed: list[Exception] = []

        async def connected() -> Connection | None:
            try:
                return await self._connect()
            except (BulkAmqpError, OSError) as error:
                failed.append(error)
                return None

        made: Connection = await until(
            connected,
            lambda: f"{self.origin} may publish again; {failed[-1]!r}",
            BACK_WITHIN_S,
            every_s=AGAIN_AFTER_S,
        )
        return made

    def _made(
        self,
        number: int,
        size: int,
        with_id: bool,
        priority: Callable[[int], int] | None,
        label: Callable[[int], str] | None,
    ) -> tuple[bytes, bytes]:
        """Properties and body of one message."""
        urgency = None if priority is None else priority(number)
        name = "" if label is None else label(number)
        return (
            properties(self.origin, number, with_id=with_id, priority=urgency, label=name),
            _body(self.origin, number, size),
        )

    async def _chunk(
        self, publisher: Publisher, numbers: range, made: Sequence[tuple[bytes, bytes]]
    ) -> bool:
        """Publish these, made as properties and body; whether all were confirmed."""
        bodies = [body for _, body in made]
        messages: Sequence[Message] = [
            (self._exchange, self._key_of(number), raw, body)
            for number, (raw, body) in zip(numbers, made, strict=True)
        ]
        publication = publisher.publish_many(messages)
        self._next = numbers.stop
        outcome = await publisher.wait(publication)
        unknown = {sequence - outcome.first for sequence in (*outcome.unknown, *outcome.nacked)}
        self.refused.update(numbers[sequence - outcome.first] for sequence in outcome.nacked)
        for index, (number, body) in enumerate(zip(numbers, bodies, strict=True)):
            kept = self.indeterminate if index in unknown else self.confirmed
            kept[number] = body
        return not unknown


class TrafficSink:
    """A durable queue at one site and everything that ever came out of it."""

    def __init__(
        self,
        uri: str | Cluster,
        site: str,
        exchange: str = "orders",
        key: str = "#",
        queue: str = "",
    ) -> None:
        self.site = site
        self.arrived: list[Arrived] = []
        self.seen: dict[str, set[int]] = defaultdict(set)
        """Numbers by origin."""
        self.raw: list[Delivery] = []
        self.keep_raw = False
        self.queue = queue or f"sink.{exchange}"
        self._uri = uri
        self.ssl_context: ssl.SSLContext | None = None
        self._exchange = exchange
        self._key = key
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None

    async def declare(self, **arguments: object) -> None:
        connection = await connect(
            self._uri, name=f"sink {self.site}", ssl_context=self.ssl_context
        )
        channel = await connection.channel()
        await channel.declare_queue(self.queue, durable=True, arguments=dict(arguments))
        await channel.bind_queue(self.queue, self._exchange, self._key)
        await connection.close()

    async def start(self) -> None:
        """Declare the queue and consume, over a new connection whenever one ends."""
        await self.declare()
        self.resume()

    def resume(self) -> None:
        self._task = asyncio.create_task(self._consume(), name=f"sink {self.site}")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()

    def from_others(self) -> list[Arrived]:
        """What the mesh brought: the site's own messages are its broker's business."""
        return [message for message in self.arrived if message.origin != self.site]

    def missing_of(self, source: TrafficSource) -> int:
        """How many messages of that source, at least, have not come; 0 only if all have."""
        self.raise_if_failed()
        seen = self.seen[source.origin]
        few = len(source.confirmed) - len(seen)
        return few if few > 0 else len(source.confirmed.keys() - seen)

    def raise_if_failed(self) -> None:
        """Consuming ends with `close` alone; whatever else ended it is raised here."""
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()

    async def _consume(self) -> None:
        failed: list[Exception] = []

        async def consuming() -> Connection | None:
            try:
                self._connection = await connect(
                    self._uri, name=f"sink {self.site}", ssl_context=self.ssl_context
                )
                taker = _Taker(self)
                taker.consumer = Consumer(await self._connection.channel(), self.queue, taker.take)
                await taker.consumer.start(prefetch=2000)
            except (BulkAmqpError, OSError) as error:
                failed.append(error)
                return None
            return self._connection

        while True:
            connection: Connection = await until(
                consuming,
                lambda: f"{self.queue} of {self.site} may be consumed again; {failed[-1]!r}",
                BACK_WITHIN_S,
                every_s=AGAIN_AFTER_S,
            )
            await connection.wait_closed()

    def note(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            message = _arrived(delivery)
            self.arrived.append(message)
            self.seen[message.origin].add(message.number)
        if self.keep_raw:
            self.raw += deliveries


class _Taker:
    """Notes what one consumer brings, and acknowledges it."""

    consumer: Consumer

    def __init__(self, sink: TrafficSink) -> None:
        self._sink = sink

    def take(self, deliveries: list[Delivery]) -> None:
        self._sink.note(deliveries)
        self.consumer.ack(deliveries[-1][0])


def _arrived(delivery: Delivery) -> Arrived:
    _, _, _, _, raw, body = delivery
    origin = header(raw, b"origin")
    number = header(raw, b"number")
    path = header(raw, b"x-mesh-path")
    return Arrived(
        origin[5:].decode() if origin else "",
        int.from_bytes(number[1:], "big", signed=True) if number else -1,
        header(raw, b"x-mesh-redelivered") is not None,
        tuple(path[5:].decode().split(",")) if path else (),
        body,
    )
