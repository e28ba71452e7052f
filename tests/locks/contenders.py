"""Connections that contend for a site's lock, and the times at which each believed to have it.

Two kinds of lock: the exclusive queue that nodes take today, and a lease: a quorum queue with a
single active consumer, to which each contender publishes a probe a second. Whoever gets its own
probe back was the active consumer when a majority took the probe, hence at some time after it was
sent; so each proof is dated by when its probe was sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from federation.brokers.cluster_arguments import LOST_CONSUMER, LOST_CONSUMER_MS
from federation.brokers.provision import ONE_AT_A_TIME
from relay.bulk_amqp import (
    BulkAmqpError,
    ChannelClosed,
    Connection,
    Consumer,
    Delivery,
    Publisher,
    connect,
)

LOCK = "lock"
LEASE = "lease"
WORK = "work"
LOG = "log"
LEASE_ARGUMENTS = {
    "x-queue-type": "quorum",
    "x-quorum-initial-group-size": 3,
    ONE_AT_A_TIME: True,
    "x-max-length": 100,
    # Since 4.3 a consumer on a lost node stays the active one for so long; 60 s without it.
    LOST_CONSUMER: LOST_CONSUMER_MS,
}
PROBE_EVERY_S = 1.0
TRY_EVERY_S = 0.25
ANSWER_WITHIN_S = 60.0


@dataclass
class Belief:
    """Beliefs of one contender, in the loop's time."""

    held: list[list[float]] = field(default_factory=list)
    """Times at which the contender had the exclusive queue: from, until (infinity: still)."""
    refusals: dict[str, int] = field(default_factory=dict)
    refused_at: float = float("-inf")
    """Time of the last refusal, of whichever kind."""
    proofs: list[tuple[float, float]] = field(default_factory=list)
    """Probes of the lease that came back: when each was sent, and when it came."""
    confirms: list[float] = field(default_factory=list)
    """Times of confirms for messages that the holder of the exclusive queue published."""

    def since(self, began: float) -> str:
        """Show the beliefs, in seconds after `began`."""
        held = ", ".join(f"{start - began:.1f} to {end - began:.1f}" for start, end in self.held)
        proofs = [round(sent - began, 1) for sent, _ in self.proofs]
        lease = [
            f"{one}..{other}"
            for one, other in itertools.pairwise([None, *proofs, None])
            if one is None or other is None or other - one > 3 * PROBE_EVERY_S
        ]
        return f"had the queue {held or 'never'}; proofs {' '.join(lease)}; {self.refusals}"

    def refused(self, reason: str) -> None:
        self.refusals[reason] = self.refusals.get(reason, 0) + 1
        self.refused_at = asyncio.get_running_loop().time()

    @property
    def has_queue_since(self) -> float | None:
        """Time since which the contender believes to have the exclusive queue, None without it."""
        start, end = self.held[-1] if self.held else (0.0, 0.0)
        return start if end == float("inf") else None


class Contender:
    """One site node's side: contends for both locks, at the first of `uris` that answers."""

    def __init__(self, name: str, uris: Sequence[str], *, again: bool = True) -> None:
        self.name = name
        self.belief = Belief()
        self.has_lock = asyncio.Event()
        self.has_lease = asyncio.Event()
        self._uris = list(uris)
        self._again = again
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.get_running_loop()

    def begin(self) -> None:
        self._tasks = [asyncio.create_task(each()) for each in (self._exclusive, self._lease)]

    @property
    def is_over(self) -> bool:
        """True once the contender contends no more for the exclusive queue."""
        return bool(self._tasks) and self._tasks[0].done()

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connection(self) -> Connection:
        for uri in itertools.cycle(self._uris):
            try:
                return await connect(uri, name=f"contender {self.name}")
            except (BulkAmqpError, OSError) as error:
                self.belief.refused(type(error).__name__)
                await asyncio.sleep(TRY_EVERY_S)
        raise AssertionError("there is no uri")

    async def _exclusive(self) -> None:
        while True:
            connection = await self._connection()
            try:
                await self._try_exclusive(connection)
            except (BulkAmqpError, OSError) as error:
                self.belief.refused(type(error).__name__)
            except TimeoutError:
                self.belief.refused("no answer")
            finally:
                connection.abort("the contender gives this connection up")
            if self.belief.held and not self._again:
                return
            await asyncio.sleep(TRY_EVERY_S)

    async def _try_exclusive(self, connection: Connection) -> None:
        while True:
            try:
                async with asyncio.timeout(ANSWER_WITHIN_S):
                    channel = await connection.channel()
                    await channel.declare_queue(LOCK, exclusive=True)
                break
            except ChannelClosed as error:
                self.belief.refused(f"{error.code} {error.text[:60]}")
                await asyncio.sleep(TRY_EVERY_S)
        interval = [self._loop.time(), float("inf")]
        self.belief.held.append(interval)
        self.has_lock.set()
        working = asyncio.create_task(self._work(connection))
        try:
            await connection.wait_closed()
        finally:
            interval[1] = self._loop.time()
            working.cancel()

    async def _work(self, connection: Connection) -> None:
        """Publish as the holder of the lock does, and note each confirm."""
        with contextlib.suppress(BulkAmqpError):
            publisher = Publisher(await connection.channel())
            await publisher.start()
            while True:
                publication = publisher.publish_many([("", WORK.encode(), b"\0\0", b"x")])
                outcome = await publisher.wait(publication)
                if not outcome.unknown and not outcome.nacked:
                    self.belief.confirms.append(self._loop.time())
                await asyncio.sleep(TRY_EVERY_S)

    async def _lease(self) -> None:
        while True:
            connection = await self._connection()
            try:
                await self._probe(connection)
            except (BulkAmqpError, OSError) as error:
                self.belief.refused(f"lease: {type(error).__name__}")
            finally:
                connection.abort("the contender gives this connection up")
            if self.belief.proofs and not self._again:
                return
            await asyncio.sleep(TRY_EVERY_S)

    async def _probe(self, connection: Connection) -> None:
        sent: dict[bytes, float] = {}

        def on_deliveries(deliveries: list[Delivery]) -> None:
            for *_, body in deliveries:
                if body in sent:
                    self.belief.proofs.append((sent.pop(body), self._loop.time()))
                    self.has_lease.set()
            consumer.ack(deliveries[-1][0])

        ended: asyncio.Future[BulkAmqpError] = self._loop.create_future()
        consumer = Consumer(
            await connection.channel(),
            LEASE,
            on_deliveries,
            on_ended=lambda error: ended.done() or ended.set_result(error),
        )
        await consumer.start(prefetch=100)
        publisher = Publisher(await connection.channel(), confirms=False)
        await publisher.start()
        for number in itertools.count():
            if ended.done():
                raise ended.result()
            body = f"{self.name} {id(connection)} {number}".encode()
            sent[body] = self._loop.time()
            publisher.publish_many([("", LEASE.encode(), b"\0\0", body)])
            await asyncio.wait({ended}, timeout=PROBE_EVERY_S)
