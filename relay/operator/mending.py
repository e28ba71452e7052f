"""Operator's work on messages put aside at a site: look, send again, give up.

Sending again goes past the same barrier as the first delivery: a message that came by another way
since is suppressed, and a delivery now stops later copies. It goes out flagged
`x-mesh-redelivered`, since some queue may have the message from an earlier attempt, with its
history in the headers. The message leaves its queue only after the commit: after a crash in between
it is found again, and the barrier knows that it was delivered from this very place.

A queue is looked at by consuming without acknowledging: unsettled messages go back, in order, when
the channel closes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum

from dedup.barrier import Judgement, Verdict
from dedup.identity import scope_prefix
from dedup.keys import place_prefix, places_of
from federation.mesh import Exchange, IdentityScope
from relay.batches.batch import BatchKind, Entry
from relay.batches.mesh_headers import (
    ATTEMPTS_HEADER,
    DEAD_REASON_HEADER,
    QUARANTINE_REASON_HEADER,
    repaired_of,
)
from relay.batches.opened_batch import content_of
from relay.batches.time_offsets import pack_offsets
from relay.bulk_amqp import BulkAmqpError, Channel, Connection, Consumer
from relay.bulk_amqp.content_header import rewrite
from relay.bulk_amqp.frame_reader import Delivery
from relay.delivery.context import DeliveryContext
from relay.delivery.local_exchange import Answer, LocalExchangeError, Outgoing
from relay.delivery.properties import DeliveryStamp, text_field
from relay.delivery.put_aside import Aside, AsideOrigin, PutAside, put_aside
from relay.delivery.repair_proof import proof_of
from relay.ledger.rows import (
    CONTENT_BYTES,
    REDELIVERED,
    REPAIRED,
    Event,
    LedgerRow,
    Outcome,
    Stage,
    pack_contents,
)
from relay.ledger_proof import LedgerUnreadable, Sought
from relay.state.codec import encode_name
from relay.state.node_state import Commit

MOST_AT_ONCE = 2000
"""Messages of one look: a quorum queue of 3.10 hands out no more unsettled ones."""
MOST_BYTES = 64 << 20
"""Bytes of the bodies of one look: a queue of 15 MiB messages must not fill a node's memory."""
HANDED_OUT_WITHIN_S = 10.0


class MendingError(Exception):
    """The queue cannot be looked at; the text has the remedy."""


class Mended(StrEnum):
    """Outcome for one message."""

    DELIVERED = "delivered"
    DUPLICATE = "duplicate"
    """Delivered by another way meanwhile: nothing was sent, and the message was removed."""
    DROPPED = "dropped"
    KEPT = "kept"
    """Still in its queue, for the reason in `Result.reason`."""


@dataclass(frozen=True, slots=True)
class Result:
    id: str
    outcome: Mended
    reason: str = ""
    """Reason why the message was kept, or a remark; may be empty."""


@dataclass(frozen=True, slots=True)
class Look:
    """Number of messages in a queue, and the first of them."""

    total: int
    messages: list[PutAside]


class Mending:
    """Mending of one site. `connect` opens a connection of its own to the site's broker."""

    def __init__(
        self, context: DeliveryContext, connect: Callable[[], Awaitable[Connection]]
    ) -> None:
        self._context = context
        self._connect = connect
        self._one_at_a_time = asyncio.Lock()

    async def look(self, aside: Aside, most: int = MOST_AT_ONCE) -> Look:
        """Return the queue's first messages, which stay in the queue. Raises MendingError."""
        async with self._opened(aside, most) as (look, _):
            return look

    async def retry(self, aside: Aside, ids: Collection[str] | None) -> AsyncIterator[Result]:
        """Send these messages (None: all present at the beginning) again, one after the other, and
        yield a result for each. Raises MendingError.
        """
        async with self._opened(aside, MOST_AT_ONCE) as (look, consumer):
            async for message, result in self._chosen(look, ids, self._send_again):
                if result.outcome is not Mended.KEPT:
                    consumer.ack(message.tag, multiple=False)
                yield result

    async def drop(self, aside: Aside, ids: Collection[str] | None) -> AsyncIterator[Result]:
        """Give these messages (None: all present at the beginning) up, with a row in the ledger.
        Raises MendingError.
        """
        async with self._opened(aside, MOST_AT_ONCE) as (look, consumer):
            async for message, result in self._chosen(look, ids, self._give_up):
                # The row first: better dropped twice in the ledger than gone without a row.
                consumer.ack(message.tag, multiple=False)
                yield result

    # -- the queue ---------------------------------------------------------------------------

    @asynccontextmanager
    async def _opened(self, aside: Aside, most: int) -> AsyncIterator[tuple[Look, Consumer]]:
        settings = self._context.settings
        dead = aside is Aside.DEAD_LETTERS
        queue = settings.dead_letter_queue if dead else settings.quarantine_queue
        async with self._one_at_a_time:
            try:
                connection = await self._connect()
            except (BulkAmqpError, OSError) as error:
                raise MendingError(f"the site's broker cannot be asked: {error}") from error
            try:
                yield await _hand_out(await connection.channel(), queue, most)
            except BulkAmqpError as error:
                raise MendingError(f"queue {queue!r}: {error}") from error
            finally:
                await connection.close()

    async def _chosen(
        self,
        look: Look,
        ids: Collection[str] | None,
        do: Callable[[PutAside], Awaitable[Result]],
    ) -> AsyncIterator[tuple[PutAside, Result]]:
        for message in look.messages:
            if ids is None or message.id in ids:
                yield message, await do(message)

    # -- one message -------------------------------------------------------------------------

    async def _send_again(self, message: PutAside) -> Result:
        context, origin = self._context, message.origin
        if origin is None:
            return _kept(message, "this is no message that can be sent: export it, or drop it")
        exchange = context.mesh.exchanges.get(message.exchange)
        if exchange is None:
            return _kept(message, f"exchange {message.exchange!r} is not in the mesh file")
        entry = Entry(
            origin.identity,
            message.routing_key,
            message.properties,
            message.body,
            origin.published_ms,
        )
        content = content_of(entry)
        try:
            judgement = await self._judge(exchange, message, origin, content)
        except LedgerUnreadable as error:
            return _kept(message, f"whether it was delivered, the ledger cannot say: {error}")
        verdict = judgement.verdicts[0]
        if verdict in (Verdict.DUPLICATE, Verdict.REPLAY):
            self._write(message, origin, Event.RETRIED, content, Outcome.DUPLICATE, Commit())
            return Result(message.id, Mended.DUPLICATE, "it has been delivered meanwhile")
        if verdict in (Verdict.CLAIMED, Verdict.DEFERRED):
            return _kept(message, "a copy of it is being delivered at this moment: try again")
        answer = None
        try:
            answer = await self._publish(exchange, message, origin)
        except LocalExchangeError as error:
            return _kept(message, str(error))
        finally:
            if answer is not Answer.CONFIRMED:
                context.barrier.release(judgement)
        if answer is not Answer.CONFIRMED:
            return _kept(message, _WHY_KEPT[answer])
        commit = Commit()
        context.barrier.commit(judgement, commit.changes)
        context.counters.retried += 1
        self._write(message, origin, Event.RETRIED, content, Outcome.DELIVERED, commit)
        return Result(message.id, Mended.DELIVERED)

    async def _judge(
        self, exchange: Exchange, message: PutAside, origin: AsideOrigin, content: bytes
    ) -> Judgement:
        """Judge like the message's flow: a repaired message passes identities that are remembered
        without a delivery. Raises LedgerUnreadable.
        """
        context, publisher = self._context, _publisher(message, origin)
        columns = (
            [_scope(exchange, publisher) + origin.identity],
            [content],
            places_of(place_prefix(encode_name(origin.name)), origin.number, origin.number + 1),
        )
        if not repaired_of(message.properties):
            return context.barrier.judge(object(), *columns)
        by_origin = exchange.scope is IdentityScope.ORIGIN
        sought = Sought(
            exchange.name, publisher if by_origin else "", origin.identity, content[:CONTENT_BYTES]
        )
        proof = await proof_of(sought, columns[0][0], publisher, origin.published_ms, context)
        return context.barrier.judge_repair(object(), *columns, *proof)

    async def _publish(self, exchange: Exchange, message: PutAside, origin: AsideOrigin) -> Answer:
        context = self._context
        local = await context.exchange()
        if local is None:
            raise MendingError("the node is stopping")
        path = origin.path
        if (publisher := _publisher(message, origin)) != path[0]:
            path = (publisher, *path)
        stamp = DeliveryStamp(exchange.name, path, context.settings.user)
        history = text_field(_reason_header(message), message.reason.encode())
        if message.attempts:
            history += text_field(ATTEMPTS_HEADER, str(message.attempts).encode())
        properties = rewrite(stamp.apply(message.properties, flagged=True), {}, history)
        answers = await local.publish(
            exchange.delivers_to,
            [Outgoing(message.routing_key, properties, message.body)],
            timeout_s=context.settings.confirm_timeout_s,
        )
        return answers[0]

    async def _give_up(self, message: PutAside) -> Result:
        self._context.counters.dropped += 1
        origin = message.origin
        content = b""
        if origin is not None:
            content = content_of(
                Entry(origin.identity, message.routing_key, message.properties, message.body, 0)
            )
        self._write(message, origin, Event.DROPPED, content, Outcome.DEAD, Commit())
        return Result(message.id, Mended.DROPPED)

    def _write(
        self,
        message: PutAside,
        origin: AsideOrigin | None,
        event: Event,
        content: bytes,
        outcome: Outcome,
        commit: Commit,
    ) -> None:
        commit.row(_row(message, origin, event, content, outcome, self._context.now_ms()))
        self._context.state.write(commit)


async def _hand_out(channel: Channel, queue: str, most: int) -> tuple[Look, Consumer]:
    """Consume the first messages, within the limits of memory."""
    total = (await channel.declare_queue(queue, passive=True)).message_count
    most = min(most, total, MOST_AT_ONCE)
    got: list[PutAside] = []
    enough = asyncio.Event()
    size = 0

    def take(deliveries: Sequence[Delivery]) -> None:
        nonlocal size
        for delivery in deliveries:
            if len(got) < most and size < MOST_BYTES:
                got.append(put_aside(delivery))
                size += len(delivery[5])
        if len(got) >= most or size >= MOST_BYTES:
            enough.set()

    consumer = Consumer(channel, queue, take, on_ended=lambda _: enough.set())
    if most:
        await consumer.start(prefetch=most)
        try:
            async with asyncio.timeout(HANDED_OUT_WITHIN_S):
                await enough.wait()
        except TimeoutError:
            # Another consumer has the messages, or the queue has no leader.
            if not got:
                raise MendingError(f"queue {queue!r} hands nothing out") from None
        if consumer.ended is not None:
            raise consumer.ended
    return Look(total, got), consumer


def _row(
    message: PutAside,
    origin: AsideOrigin | None,
    event: Event,
    content: bytes,
    outcome: Outcome,
    now_ms: int,
) -> LedgerRow:
    """Ledger row of one message, with identity and place if it has them."""
    if origin is None:
        return LedgerRow(
            Stage.DELIVERED,
            now_ms,
            event,
            exchange=message.exchange,
            reason=f"{message.id}: {message.reason}",
        )
    series = origin.name.series
    flag = REDELIVERED if outcome is Outcome.DELIVERED else 0
    brought_by_repair = repaired_of(message.properties)
    if brought_by_repair:
        flag |= REPAIRED
    return LedgerRow(
        Stage.DELIVERED,
        now_ms,
        event,
        kind=BatchKind.REPAIR if brought_by_repair else BatchKind.MESSAGES,
        position=brought_by_repair,
        origin=series.origin,
        incarnation=series.incarnation,
        exchange=series.exchange,
        lane=series.lane,
        destinations=series.destinations,
        sequence=origin.name.sequence,
        path=origin.path,
        first_published_ms=origin.published_ms,
        last_published_ms=origin.published_ms,
        reason=message.reason,
        first_entry=origin.number,
        count=1,
        identities=origin.identity,
        contents=pack_contents([content]),
        outcomes=bytes([outcome | flag]),
        published=pack_offsets([origin.published_ms], origin.published_ms),
        delivered=pack_offsets([now_ms], now_ms),
    )


def _publisher(message: PutAside, origin: AsideOrigin) -> str:
    """Cluster ID of the site where the message was published."""
    return repaired_of(message.properties) or origin.name.series.origin


def _scope(exchange: Exchange, publisher: str) -> bytes:
    by_origin = exchange.scope is IdentityScope.ORIGIN
    return scope_prefix(exchange.name, publisher if by_origin else None)


def _reason_header(message: PutAside) -> bytes:
    return DEAD_REASON_HEADER if message.attempts else QUARANTINE_REASON_HEADER


def _kept(message: PutAside, why: str) -> Result:
    return Result(message.id, Mended.KEPT, why)


_WHY_KEPT = {
    Answer.UNROUTED: "no queue is bound for it",
    Answer.REFUSED: "a queue refused it (full, reject-publish)",
    Answer.UNKNOWN: "no confirm: the broker went away, or a queue has no leader; it may be there",
    Answer.UNSENDABLE: "the broker does not take it: too large",
}
