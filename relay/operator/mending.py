"""An operator's work on what was put aside at a site: look, send again, give up.

Sending again goes past the same barrier as the first delivery: what has come by another way since
is suppressed, and what is delivered now stops later copies. It goes out flagged
`x-mesh-redelivered`, since some queue may have it from an earlier attempt, with its history in the
headers. The message leaves its queue only after the commit: a crash in between finds it again, and
the barrier tells that it was delivered from this very place.

A queue is looked at by consuming without acknowledging: what is not settled goes back, in order,
when the channel closes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum

from dedup.identity import scope_prefix
from dedup.judgement import Judgement, Verdict
from dedup.keys import place_prefix, places_of
from federation.mesh import Exchange, IdentityScope
from relay.batches.batch import BatchKind, Entry
from relay.batches.mesh_headers import (
    ATTEMPTS_HEADER,
    DEAD_REASON_HEADER,
    QUARANTINE_REASON_HEADER,
    repaired_of,
)
from relay.bulk_amqp import BulkAmqpError, Channel, Connection, Consumer
from relay.bulk_amqp.content_header import rewrite
from relay.bulk_amqp.frame_reader import Delivery
from relay.delivery.chunk_builder import content_of
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
    pack_offsets,
)
from relay.ledger_files.proof import LedgerUnreadable, Sought
from relay.state.codec import encode_name
from relay.state.node_state import Commit

MOST_AT_ONCE = 2000
"""Messages that are looked at in one go: a quorum queue of 3.10 hands out no more unsettled."""
MOST_BYTES = 64 << 20
"""... and of their bodies: a node's memory is not for a queue of 15 MiB messages."""
HANDED_OUT_WITHIN_S = 10.0


class MendingError(Exception):
    """The queue cannot be looked at; the reason says what to do."""


class Mended(StrEnum):
    """What became of one message."""

    DELIVERED = "delivered"
    DUPLICATE = "duplicate"
    """It had been delivered by another way meanwhile: nothing was sent, and it is put away."""
    DROPPED = "dropped"
    KEPT = "kept"
    """Still in its queue; why, is said beside it."""


@dataclass(frozen=True, slots=True)
class Result:
    id: str
    outcome: Mended
    said: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """What stands in a queue: how much, and its first messages."""

    total: int
    messages: list[PutAside]


class Mending:
    """One site's. `connect` opens a connection of its own to the site's broker."""

    def __init__(
        self, context: DeliveryContext, connect: Callable[[], Awaitable[Connection]]
    ) -> None:
        self._context = context
        self._connect = connect
        self._one_at_a_time = asyncio.Lock()

    async def look(self, aside: Aside, most: int = MOST_AT_ONCE) -> Look:
        """The first messages of that queue; they stay in it. Raises MendingError."""
        async with self._opened(aside, most) as (look, _):
            return look

    async def retry(self, aside: Aside, ids: Collection[str] | None) -> AsyncIterator[Result]:
        """Send these (None: all that were there at the beginning) again, one after the other, a
        result each. Raises MendingError.
        """
        async with self._opened(aside, MOST_AT_ONCE) as (look, consumer):
            async for one, result in self._chosen(look, ids, self._send_again):
                if result.outcome is not Mended.KEPT:
                    consumer.ack(one.tag, multiple=False)
                yield result

    async def drop(self, aside: Aside, ids: Collection[str] | None) -> AsyncIterator[Result]:
        """Give these (None: all that were there at the beginning) up; the ledger keeps that it was
        done. Raises MendingError.
        """
        async with self._opened(aside, MOST_AT_ONCE) as (look, consumer):
            async for one, result in self._chosen(look, ids, self._give_up):
                # The row first: dropped twice in the ledger is better than gone without a word.
                consumer.ack(one.tag, multiple=False)
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
        for one in look.messages:
            if ids is None or one.id in ids:
                yield one, await do(one)

    # -- one message -------------------------------------------------------------------------

    async def _send_again(self, one: PutAside) -> Result:
        context, origin = self._context, one.origin
        if origin is None:
            return _kept(one, "this is no message that can be sent: export it, or drop it")
        exchange = context.mesh.exchanges.get(one.exchange)
        if exchange is None:
            return _kept(one, f"exchange {one.exchange!r} is not in the mesh file")
        entry = Entry(
            origin.identity, one.routing_key, one.properties, one.body, origin.published_ms
        )
        content = content_of(entry)
        try:
            judgement = await self._judge(exchange, one, origin, content)
        except LedgerUnreadable as error:
            return _kept(one, f"whether it was delivered, the ledger cannot say: {error}")
        verdict = judgement.verdicts[0]
        if verdict in (Verdict.DUPLICATE, Verdict.REPLAY):
            self._write(one, origin, Event.RETRIED, content, Outcome.DUPLICATE, Commit())
            return Result(one.id, Mended.DUPLICATE, "it has been delivered meanwhile")
        if verdict is Verdict.CLAIMED:
            return _kept(one, "a copy of it is being delivered at this moment: try again")
        answer = None
        try:
            answer = await self._publish(exchange, one, origin)
        except LocalExchangeError as error:
            return _kept(one, str(error))
        finally:
            if answer is not Answer.CONFIRMED:
                context.barrier.release(judgement)
        if answer is not Answer.CONFIRMED:
            return _kept(one, _WHY_KEPT[answer])
        commit = Commit()
        context.barrier.commit(judgement, commit.changes)
        context.counters.retried += 1
        self._write(one, origin, Event.RETRIED, content, Outcome.DELIVERED, commit)
        return Result(one.id, Mended.DELIVERED)

    async def _judge(
        self, exchange: Exchange, one: PutAside, origin: AsideOrigin, content: bytes
    ) -> Judgement:
        """As the flow judged it: what a repair brought goes past what is remembered without a
        delivery. Raises LedgerUnreadable.
        """
        context, whose = self._context, _whose(one, origin)
        columns = (
            [_scope(exchange, whose) + origin.identity],
            [content],
            places_of(place_prefix(encode_name(origin.name)), origin.number, origin.number + 1),
        )
        if not repaired_of(one.properties):
            return context.barrier.judge(object(), *columns)
        by_origin = exchange.scope is IdentityScope.ORIGIN
        sought = Sought(
            exchange.name, whose if by_origin else "", origin.identity, content[:CONTENT_BYTES]
        )
        proof = await proof_of(sought, columns[0][0], whose, origin.published_ms, context)
        return context.barrier.judge_repair(object(), *columns, *proof)

    async def _publish(self, exchange: Exchange, one: PutAside, origin: AsideOrigin) -> Answer:
        context = self._context
        local = await context.exchange()
        if local is None:
            raise MendingError("the node is stopping")
        path = origin.path
        if (whose := _whose(one, origin)) != path[0]:
            path = (whose, *path)
        stamp = DeliveryStamp(exchange.name, path, context.settings.user)
        history = text_field(_reason_header(one), one.reason.encode())
        if one.attempts:
            history += text_field(ATTEMPTS_HEADER, str(one.attempts).encode())
        properties = rewrite(stamp.apply(one.properties, flagged=True), {}, history)
        answers = await local.publish(
            exchange.delivers_to,
            [Outgoing(one.routing_key, properties, one.body)],
            timeout_s=context.settings.confirm_timeout_s,
        )
        return answers[0]

    async def _give_up(self, one: PutAside) -> Result:
        self._context.counters.dropped += 1
        origin = one.origin
        content = b""
        if origin is not None:
            content = content_of(
                Entry(origin.identity, one.routing_key, one.properties, one.body, 0)
            )
        self._write(one, origin, Event.DROPPED, content, Outcome.DEAD, Commit())
        return Result(one.id, Mended.DROPPED)

    def _write(
        self,
        one: PutAside,
        origin: AsideOrigin | None,
        event: Event,
        content: bytes,
        outcome: Outcome,
        commit: Commit,
    ) -> None:
        commit.row(_row(one, origin, event, content, outcome, self._context.now_ms()))
        self._context.state.write(commit)


async def _hand_out(channel: Channel, queue: str, most: int) -> tuple[Look, Consumer]:
    """Consume the first messages, as far as there is room for them."""
    total = (await channel.declare_queue(queue, passive=True)).message_count
    most = min(most, total, MOST_AT_ONCE)
    got: list[PutAside] = []
    enough = asyncio.Event()
    size = 0

    def take(deliveries: list[Delivery]) -> None:
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
            # Somebody else consumes it, or it has no leader.
            if not got:
                raise MendingError(f"queue {queue!r} hands nothing out") from None
        if consumer.ended is not None:
            raise consumer.ended
    return Look(total, got), consumer


def _row(
    one: PutAside,
    origin: AsideOrigin | None,
    event: Event,
    content: bytes,
    outcome: Outcome,
    now_ms: int,
) -> LedgerRow:
    """Of one message; its identity and place where it has one."""
    if origin is None:
        return LedgerRow(
            Stage.DELIVERED, now_ms, event, exchange=one.exchange, reason=f"{one.id}: {one.reason}"
        )
    series = origin.name.series
    flag = REDELIVERED if outcome is Outcome.DELIVERED else 0
    brought_by_repair = repaired_of(one.properties)
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
        reason=one.reason,
        first_entry=origin.number,
        count=1,
        identities=origin.identity,
        contents=pack_contents([content]),
        outcomes=bytes([outcome | flag]),
        published=pack_offsets([origin.published_ms], origin.published_ms),
        delivered=pack_offsets([now_ms], now_ms),
    )


def _whose(one: PutAside, origin: AsideOrigin) -> str:
    """The cluster ID of the site where it was published."""
    return repaired_of(one.properties) or origin.name.series.origin


def _scope(exchange: Exchange, whose: str) -> bytes:
    by_origin = exchange.scope is IdentityScope.ORIGIN
    return scope_prefix(exchange.name, whose if by_origin else None)


def _reason_header(one: PutAside) -> bytes:
    return DEAD_REASON_HEADER if one.attempts else QUARANTINE_REASON_HEADER


def _kept(one: PutAside, why: str) -> Result:
    return Result(one.id, Mended.KEPT, why)


_WHY_KEPT = {
    Answer.UNROUTED: "no queue is bound for it",
    Answer.REFUSED: "a queue refused it (full, reject-publish)",
    Answer.UNKNOWN: "no confirm: the broker went away, or a queue has no leader; it may be there",
    Answer.UNSENDABLE: "the broker does not take it: too large",
}
