"""A site's egress queues in memory, for simulation and fast tests: same contract, faults on demand.

A `MemoryEgressBroker` holds the queues and outlives the connections to it. Queues behave as quorum
queues do: whatever a connection leaves unacknowledged is flagged `redelivered` from then on,
however far its consumer got, and returns to the front: at once and in order, as at a broker of one
node, or in pieces, shuffled and late, which is worse than any cluster does (`Returns`).

=====================  ==========================================================================
`break_connections()`  every connection ends; acknowledgements not handled yet are lost with it
`ack_s`                how long an acknowledgement takes to be handled, in the loop's time
`delete(queue)`        consumers are cancelled
`reachable = False`    no new connection
`flap()`               a cluster takes the consumers' node for lost and finds it again: messages
                       in hand are handed out once more, to the same consumers
=====================  ==========================================================================
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from enum import StrEnum

from relay.bulk_amqp.content_header import QUORUM_QUEUE_HEADERS, canonical, rewrite
from relay.bulk_amqp.field_table import entry, long_integer
from relay.packing.comeback.returned_prefix import PREFETCH
from relay.packing.egress import (
    GOODBYE_S,
    PATIENT_GOODBYE_S,
    EgressClosed,
    EgressMessage,
    PackerLockHeld,
    QueueMissing,
)

_BURST = 256
_HEARTBEAT_S = 5.0
_HEARTBEAT_BYTES = 8
_LATE_S = 60.0
"""Longest time before a late return: as 4.3's `consumer_disconnected_timeout`."""


class Returns(StrEnum):
    """Order in which a queue hands out again messages that a connection left unacknowledged."""

    FIFO = "fifo"
    SHUFFLED = "shuffled"


@dataclass(slots=True)
class _Held:
    exchange: str
    routing_key: bytes
    properties: bytes
    body: bytes
    delivered_before: bool = False


@dataclass(slots=True)
class _Queue:
    ready: deque[_Held] = field(default_factory=deque)
    late: int = 0
    """Number of returned messages that are kept for a while before they are handed out again."""
    consumers: list[MemoryEgressQueue] = field(default_factory=list)


class MemoryEgressBroker:
    """State that outlives connections: queues, and the holders of locks."""

    def __init__(
        self,
        *,
        ack_s: float = 0.0,
        prefetch: int = PREFETCH,
        returns: Returns = Returns.FIFO,
        chance: random.Random | None = None,
    ) -> None:
        self.ack_s = ack_s
        self.prefetch = prefetch
        self.returns = returns
        self._chance = chance or random.Random(0)
        self._context = copy_context()
        """The broker's own context: the publisher's may be frozen."""
        self.reachable = True
        self._queues: dict[str, _Queue] = {}
        self._locks: dict[str, MemoryEgress] = {}
        self._connections: list[MemoryEgress] = []

    async def connect(self, lock: str) -> MemoryEgress:
        """Open a connection. Raises EgressClosed when unreachable."""
        await asyncio.sleep(0)
        if not self.reachable:
            raise EgressClosed("no connection: unreachable")
        egress = MemoryEgress(self, lock)
        self._connections.append(egress)
        return egress

    def declare(self, queue: str) -> None:
        self._queues.setdefault(queue, _Queue())

    def publish(
        self,
        queue: str,
        routing_key: bytes,
        body: bytes,
        properties: bytes = b"\x00\x00",
        exchange: str = "",
    ) -> None:
        """Put a message at the end of the queue."""
        held = _Held(exchange, routing_key, properties, body)
        self._queues[queue].ready.append(held)
        self._wake(queue)

    def depth(self, queue: str) -> int:
        """Number of messages in the queue, with those handed out."""
        made = self._queues[queue]
        return (
            len(made.ready)
            + made.late
            + sum(consumer.unacknowledged for consumer in made.consumers)
        )

    def bodies(self, queue: str) -> list[bytes]:
        """Bodies of all messages that are not handed out, in order."""
        return [held.body for held in self._queues[queue].ready]

    def purge(self, queue: str) -> None:
        """Drop all messages that are not handed out."""
        self._queues[queue].ready.clear()

    def delete(self, queue: str) -> None:
        """Delete the queue and its messages; its consumers are cancelled."""
        for consumer in self._queues.pop(queue).consumers:
            consumer.end("the queue was deleted")

    def break_connections(self, reason: str = "cut") -> None:
        """End every connection; acknowledgements under way are lost."""
        for connection in list(self._connections):
            self.drop(connection, reason)

    def flap(self) -> None:
        """Hand out again, flagged, all messages in hand; the connections stay."""
        for name, queue in self._queues.items():
            for consumer in queue.consumers:
                messages = consumer.take_back()
                for held in messages:
                    held.delivered_before = True
                queue.ready.extendleft(reversed(messages))
            self._wake(name)

    def forget_locks(self) -> None:
        """Give all locks up while their connections live on, as the parts of a cut cluster may."""
        self._locks.clear()

    # -- for connections --------------------------------------------------------------------------

    def take_lock(self, lock: str, egress: MemoryEgress) -> None:
        if self._locks.setdefault(lock, egress) is not egress:
            raise PackerLockHeld(lock)

    def consume(self, queue: str, consumer: MemoryEgressQueue) -> None:
        made = self._queues.get(queue)
        if made is None:
            raise QueueMissing(queue)
        made.consumers.append(consumer)
        self._wake(queue)

    def next_for(self, queue: str, room: int) -> list[_Held]:
        ready = self._queues[queue].ready if queue in self._queues else deque()
        return [ready.popleft() for _ in range(min(room, len(ready)))]

    def has_ready(self, queue: str) -> bool:
        return queue in self._queues and bool(self._queues[queue].ready)

    def put_back(self, queue: str, messages: list[_Held], consumer: MemoryEgressQueue) -> None:
        made = self._queues.get(queue)
        if made is None:
            return
        if consumer in made.consumers:
            made.consumers.remove(consumer)
        for held in messages:
            held.delivered_before = True
        if self.returns is Returns.FIFO:
            made.ready.extendleft(reversed(messages))
            self._wake(queue)
            return
        delay_s = 0.0
        for piece in self._pieces(messages):
            made.late += len(piece)
            asyncio.get_running_loop().call_later(
                delay_s, self._give_late, queue, made, piece, context=self._context
            )
            delay_s = self._chance.choice((0.0, self._chance.uniform(0.0, _LATE_S)))

    def _pieces(self, messages: list[_Held]) -> list[list[_Held]]:
        """Split the messages into pieces, in any order; a piece may be in its old order."""
        chance = self._chance
        if chance.random() < 0.5:
            chance.shuffle(messages)
        pieces = []
        while messages:
            count = chance.randint(1, len(messages))
            pieces.append(messages[:count])
            del messages[:count]
        chance.shuffle(pieces)
        return pieces

    def _give_late(self, queue: str, made: _Queue, messages: list[_Held]) -> None:
        made.late -= len(messages)
        made.ready.extendleft(reversed(messages))
        if self._queues.get(queue) is made:
            self._wake(queue)

    def drop(self, egress: MemoryEgress, reason: str) -> None:
        if egress in self._connections:
            self._connections.remove(egress)
        self._locks = {lock: who for lock, who in self._locks.items() if who is not egress}
        egress.end(reason)

    def _wake(self, queue: str) -> None:
        for consumer in self._queues[queue].consumers:
            consumer.wake()


class MemoryEgressQueue:
    """One consumption of one queue."""

    def __init__(
        self,
        egress: MemoryEgress,
        queue: str,
        on_messages: Callable[[Sequence[EgressMessage]], None],
        on_ended: Callable[[str], None],
    ) -> None:
        self._egress = egress
        self._broker = egress.broker
        self._queue = queue
        self._on_messages = on_messages
        self._on_ended = on_ended
        self._out: deque[tuple[int, _Held]] = deque()
        self._tag = 0
        self._acked = 0
        self._woken = False
        self._over = False
        self._loop = asyncio.get_running_loop()
        self._process = copy_context()
        """Context of the consumer, whoever publishes or breaks the connection."""

    @property
    def unacknowledged(self) -> int:
        return len(self._out)

    def ack(self, tag: int) -> None:
        if self._egress.ended:
            raise EgressClosed("the connection is gone")
        if not self._acked < tag <= self._tag:
            # A broker would answer PRECONDITION_FAILED.
            raise EgressClosed(f"tag {tag} cannot be acknowledged after {self._acked}")
        self._acked = tag
        self._loop.call_later(self._broker.ack_s, self._handle_ack, tag)

    def wake(self) -> None:
        if not self._woken and not self._over:
            self._woken = True
            self._loop.call_soon(self._deliver, context=self._process)

    def end(self, reason: str) -> None:
        """End the consumption, by the broker's doing."""
        was_over = self._over
        self._over = True
        if not was_over:
            self._process.copy().run(self._on_ended, reason)

    def give_back(self) -> None:
        """Return the unacknowledged messages, as the connection is gone."""
        self._broker.put_back(self._queue, [held for _, held in self._out], self)
        self._out.clear()

    def take_back(self) -> list[_Held]:
        """Return messages handed out and not acknowledged; later acknowledgements come too late."""
        messages = [held for _, held in self._out]
        self._out.clear()
        return messages

    def _deliver(self) -> None:
        self._woken = False
        if self._over or self._egress.ended or self._egress.paused:
            return
        room = min(_BURST, self._broker.prefetch - len(self._out))
        messages: list[EgressMessage] = []
        for held in self._broker.next_for(self._queue, room):
            self._tag += 1
            self._out.append((self._tag, held))
            messages.append(
                (
                    self._tag,
                    held.delivered_before,
                    held.exchange,
                    held.routing_key,
                    _again(held.properties) if held.delivered_before else held.properties,
                    held.body,
                )
            )
        if messages:
            self._egress.bytes_delivered += sum(len(message[5]) + 1 for message in messages)
            self._on_messages(messages)
            if self._broker.has_ready(self._queue) and len(self._out) < self._broker.prefetch:
                self.wake()

    def _handle_ack(self, tag: int) -> None:
        if self._egress.ended:
            return  # lost with the connection
        while self._out and self._out[0][0] <= tag:
            self._out.popleft()
        self.wake()


class MemoryEgress:
    """Egress over a MemoryEgressBroker."""

    def __init__(self, broker: MemoryEgressBroker, lock: str) -> None:
        self.broker = broker
        self.bytes_delivered = 0
        self.blocked = False
        self.paused = False
        self._lock = lock
        self._queues: list[MemoryEgressQueue] = []
        self._closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def closed(self) -> asyncio.Future[str]:
        return self._closed

    @property
    def ended(self) -> bool:
        return self._closed.done()

    @property
    def returns_in_order(self) -> bool:
        return self.broker.returns is Returns.FIFO

    @property
    def bytes_heard(self) -> int:
        heartbeats = int(asyncio.get_running_loop().time() / _HEARTBEAT_S)
        return self.bytes_delivered + _HEARTBEAT_BYTES * heartbeats

    async def take_lock(self) -> None:
        await self._turn()
        self.broker.take_lock(self._lock, self)

    async def consume(
        self,
        queue: str,
        on_messages: Callable[[Sequence[EgressMessage]], None],
        on_ended: Callable[[str], None],
    ) -> MemoryEgressQueue:
        await self._turn()
        consumer = MemoryEgressQueue(self, queue, on_messages, on_ended)
        self.broker.consume(queue, consumer)
        self._queues.append(consumer)
        return consumer

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        for queue in self._queues:
            queue.wake()

    async def close(self, *, patient: bool = False) -> None:
        try:
            within_s = PATIENT_GOODBYE_S if patient else GOODBYE_S
            await asyncio.sleep(min(self.broker.ack_s, within_s))
            await asyncio.sleep(0)  # behind the acknowledgements sent before
        finally:
            self.broker.drop(self, "closed by this node")

    async def _turn(self) -> None:
        await asyncio.sleep(0)
        if self.ended:
            raise EgressClosed(self._closed.result())

    def end(self, reason: str) -> None:
        if self._closed.done():
            return
        self._closed.set_result(reason)
        for queue in self._queues:
            queue.give_back()
            queue.end(reason)


def _again(properties: bytes) -> bytes:
    """Properties as a quorum queue of 4.3 hands them out again: with its counts, and all headers
    sorted. Older releases add fewer.
    """
    counts = b"".join(entry(name, long_integer(1)) for name in QUORUM_QUEUE_HEADERS)
    return canonical(rewrite(properties, {}, counts))
