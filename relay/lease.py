"""Lease on one connection: taken, proven again and again, and given up with the connection.

The lease is a quorum queue with a single active consumer. Each contender publishes probes at
intervals; only the active consumer gets probes. A contender that gets its own probe back was thus
the active consumer when a majority took the probe, at some time after sending: each proof is dated
by the sending of its probe and holds for `lease_s` from then.

A probe is 16 bytes that name the holder and 8 bytes that number the holder's probes. The newest own
probe is never acknowledged while the lease is held: a successor receives the probe, and so learns
that another contender was the holder, and when the last proof of that holder expires.

A lease costs one message of 24 bytes every two seconds. A lease not proven for `lease_s` aborts its
connection, so that all users of the connection end as with any lost connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from relay.bulk_amqp import BulkAmqpError, Connection, Consumer, Delivery, Publisher

_RELEASED_WITHIN_S = 1.0
_POLL_S = 0.01
PROPERTIES = b"\x00\x00"
HOLDER_BYTES = 16
_NUMBER_BYTES = 8
NEVER = float("-inf")


class LeaseHeld(Exception):
    """Another contender has the lease, or no majority is there to prove anything."""

    def __init__(self, lease: str) -> None:
        super().__init__(f"{lease!r} is another's, or the cluster has no majority")
        self.lease = lease


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Times in seconds. All contenders need the same `lease_s`."""

    lease_s: float = 20.0
    """Life of a proof. More loses fewer leases while a leader is elected; less lets a successor on
    another machine begin sooner."""
    probe_every_s: float = 2.0
    patience_s: float = 10.0
    """Longest wait in line; after it the lease counts as another contender's."""
    behind_s: float | None = None
    """Wait behind another holder, from when its last probe comes; None: `lease_s`, by which its
    last proof is over."""


USUAL_TIMES = LeaseTimes()
WHERE_A_JOURNAL_DECIDES = LeaseTimes(behind_s=1.0)
"""Times of nodes that share a journal: a former holder that does not know of its end yet announces
nothing any more, and its batches are void by their numbers."""


@dataclass(frozen=True, slots=True)
class LeaseName:
    """Queue of a lease, and holder's name: 16 bytes, equal for incarnations that cannot overlap."""

    queue: str
    holder: bytes
    times: LeaseTimes = USUAL_TIMES

    def on(self, connection: Connection) -> ClusterLease:
        """Return the lease to be taken on a connection."""
        return ClusterLease(connection, self.queue, self.holder, self.times)


@dataclass(slots=True)
class Proofs:
    """Knowledge of a contender, out of the probes that came back. Pure: no socket, no clock.

    `holder` is the same for all incarnations which cannot overlap.
    """

    holder: bytes
    lease_s: float
    behind_s: float
    _sent: dict[int, float] = field(default_factory=dict)
    _number: int = 0
    _proven_at: float = NEVER
    _given_at: float | None = None
    """Time of the first delivery, or None; before, this contender was not the active consumer."""
    _free_at: float = NEVER
    """Time until which a former holder may act."""

    def __post_init__(self) -> None:
        if len(self.holder) != HOLDER_BYTES:
            raise ValueError(f"a holder's name has {HOLDER_BYTES} bytes, not {len(self.holder)}")

    def probe(self, now: float) -> bytes:
        """Return the body of the next probe, which is sent now."""
        self._number += 1
        self._sent[self._number] = now
        # Probes older than a lease prove nothing any more.
        for number in [n for n, sent in self._sent.items() if sent < now - self.lease_s]:
            del self._sent[number]
        return self.holder + self._number.to_bytes(_NUMBER_BYTES)

    def given(self, body: bytes, *, redelivered: bool, now: float) -> bool:
        """Take in a delivery. Returns True for a recent probe of this contender."""
        if self._given_at is None:
            self._given_at = now
        if body[:HOLDER_BYTES] != self.holder:
            if redelivered:
                # The former holder's last probe was sent before this contender became active.
                self._free_at = max(self._free_at, now + self.behind_s)
            return False
        sent = self._sent.pop(int.from_bytes(body[HOLDER_BYTES:]), None)
        if sent is None:
            return False
        # An own probe sent before the first delivery may arrive before a former holder's.
        if sent >= self._given_at:
            self._proven_at = max(self._proven_at, sent)
        return True

    @property
    def has_probes_under_way(self) -> bool:
        """True while a probe sent lately has not come back."""
        return bool(self._sent)

    @property
    def expires_at(self) -> float:
        """Time until which the lease is proven."""
        return self._proven_at + self.lease_s

    def is_held(self, now: float) -> bool:
        """True if this contender may act as the holder."""
        return self._free_at <= now < self.expires_at


class ClusterLease:
    """Lease as a contender sees it. Its queue and the exchange before the queue share a name."""

    def __init__(self, connection: Connection, name: str, holder: bytes, times: LeaseTimes) -> None:
        self.name = name
        self.connection = connection
        self._times = times
        self._behind_s = times.lease_s if times.behind_s is None else times.behind_s
        self._proofs = Proofs(holder, times.lease_s, self._behind_s)
        self._consumer: Consumer | None = None
        self._publisher: Publisher | None = None
        self._news = asyncio.Event()
        self._blocked_at = float("-inf")
        self._is_given = False
        self._keeping: asyncio.Task[None] | None = None
        self._newest_tag = 0

    @property
    def is_held(self) -> bool:
        """True while the holder may act. While the broker blocks the connection, the lease stays as
        it was: a broker takes no publishes then, so none can do harm.
        """
        now = self.connection.loop.time()
        if self._proofs.is_held(now):
            return True
        return self._is_given and now < self._blocked_at + self._times.lease_s

    async def take(self) -> None:
        """Wait in line for the lease. Raises LeaseHeld, ChannelClosed (404: `apply` declares the
        queue) or ConnectionClosed; the caller then closes the connection.
        """
        try:
            # A queue without a leader gives no answer.
            async with asyncio.timeout(self._times.patience_s):
                await self._stand_in_line()
        except TimeoutError:
            raise LeaseHeld(self.name) from None
        self._keeping = asyncio.create_task(self._keep(), name=f"lease {self.name}")
        loop = self.connection.loop
        limit = loop.time() + self._times.patience_s
        while not self._proofs.is_held(loop.time()):
            # Wait no longer than one has to behind a former holder.
            patience = limit + (self._behind_s if self._newest_tag else 0.0)
            if loop.time() >= patience:
                raise LeaseHeld(self.name)
            self._news.clear()
            closed = asyncio.ensure_future(self.connection.wait_closed())
            news = asyncio.ensure_future(self._news.wait())
            try:
                await asyncio.wait({closed, news}, timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
                if closed.done():
                    raise closed.result()
            finally:
                closed.cancel()
                news.cancel()
        self._is_given = True

    async def _stand_in_line(self) -> None:
        # Probes and deliveries share a channel, because starting the consumer finds the present
        # leader: RabbitMQ 3.10 refuses all publishes over a channel whose first message met the
        # queue's leader dead, for as long as the channel lasts.
        channel = await self.connection.channel()
        self._publisher = Publisher(channel, confirms=False)
        await self._publisher.start()
        self._consumer = Consumer(
            channel,
            self.name,
            self._on_deliveries,
            on_ended=lambda error: self.connection.abort(f"the lease ended: {error}"),
        )
        await self._consumer.start(prefetch=100)

    async def release(self) -> None:
        """Settle all probes, so that a successor need not wait; the caller then closes."""
        if self._keeping is not None:
            self._keeping.cancel()
        limit = self.connection.loop.time() + _RELEASED_WITHIN_S
        while self._proofs.has_probes_under_way and self._newest_tag:
            if self.connection.loop.time() > limit or self.connection.close_reason is not None:
                return
            await asyncio.sleep(_POLL_S)
        if self._consumer is not None and self._newest_tag > self._consumer.settled_up_to:
            try:
                self._consumer.ack(self._newest_tag)
            except BulkAmqpError:
                return  # the connection is gone, and a successor has to wait

    def _on_deliveries(self, deliveries: Sequence[Delivery]) -> None:
        assert self._consumer is not None
        now = self.connection.loop.time()
        was_given = self._newest_tag > 0
        for tag, redelivered, *_, body in deliveries:
            is_own = self._proofs.given(body, redelivered=redelivered, now=now)
            if is_own and tag - 1 > self._consumer.settled_up_to:
                self._consumer.ack(tag - 1)
            self._newest_tag = tag
        if not was_given:
            self._probe()  # at once: earlier probes prove nothing
        self._news.set()

    def _probe(self) -> None:
        assert self._publisher is not None
        body = self._proofs.probe(self.connection.loop.time())
        self._publisher.publish_many([(self.name, b"", PROPERTIES, body)])

    async def _keep(self) -> None:
        loop = self.connection.loop
        try:
            while self.connection.close_reason is None:
                if self.connection.blocked is not None:
                    self._blocked_at = loop.time()
                if self._is_given and not self.is_held:
                    self.connection.abort(f"the lease {self.name!r} could not be proven in time")
                    return
                self._probe()
                await asyncio.sleep(self._times.probe_every_s)
        except BulkAmqpError:
            return  # users of the connection learn of its end from it
