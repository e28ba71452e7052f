"""Publishing of one flow's messages to the site's broker, until none is pending.

A refused message is deferred, if the exchange's order allows. Otherwise the message is tried again
alone, flagged, while the flow stands and others go on; after the last attempt the message is a dead
letter. A message sent without an answer is sent again, flagged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from itertools import takewhile
from typing import Any

from federation.mesh import RetryRule
from relay.batches.batch import Flow
from relay.delivery.chunk import DeliveryChunk
from relay.delivery.chunk_order import ChunkTurn
from relay.delivery.context import DeliveryContext
from relay.delivery.local_exchange import (
    Answer,
    ExchangeMissing,
    ExchangeRefused,
    LocalClosed,
    Outgoing,
)
from relay.delivery.referred import referred
from relay.delivery.undeliverable import dead_letter_of, quarantined_of, smaller_form
from relay.ledger.rows import Outcome
from relay.retry import retry_delay_s


class FlowPublisher:
    """One flow's publisher. `stand` receives the reason why the flow stands, empty once resumed;
    `announce` records durably that messages of a chunk are about to be sent, at the latest moment;
    `save` commits the settled messages of a chunk before a wait; `defer` takes in a refused
    message, or returns False.
    """

    def __init__(
        self,
        flow: Flow,
        context: DeliveryContext,
        stand: Callable[[str], None],
        announce: Callable[[DeliveryChunk], Awaitable[None]],
        save: Callable[[DeliveryChunk], None],
        defer: Callable[[DeliveryChunk, int], bool],
    ) -> None:
        self._flow = flow
        self._context = context
        self._stand = stand
        self._announce = announce
        self._save = save
        self._defer = defer
        self._connection_lost = False

    def publish_ahead(self, turn: ChunkTurn) -> Coroutine[Any, Any, list[Answer]] | None:
        """Hand the whole chunk to the broker, behind the chunk before. Return what waits for the
        answers; None, with nothing sent, if that cannot be at once: then the chunk waits for its
        turn.
        """
        context, chunk, channel = self._context, turn.chunk, turn.channel_before
        exchange, local = context.mesh.exchanges.get(self._flow.exchange), context.open_exchange()
        if channel is None or exchange is None or local is None:
            return None
        numbers, messages = chunk.outgoing(list(range(len(chunk))), context.now_ms())
        if len(numbers) < len(chunk):
            return None
        timeout_s = context.settings.confirm_timeout_s
        answers = local.publish_next(
            exchange.delivers_to, messages, channel=channel, timeout_s=timeout_s
        )
        if answers is not None:
            turn.handed_over(channel)
        return answers

    def answered_ahead(self, turn: ChunkTurn, answers: Sequence[Answer]) -> None:
        """Note the answers of a chunk that went ahead. A message without an answer is sent again
        with the others: the chunk before may have ended the channel.
        """
        numbers = list(range(len(turn.chunk)))
        self._answered(turn, numbers, answers, connected=False)

    def _answered(
        self, turn: ChunkTurn, numbers: list[int], answers: Sequence[Answer], *, connected: bool
    ) -> None:
        turn.chunk.sent.update(numbers)
        if answers.count(Answer.CONFIRMED) == len(answers):
            turn.chunk.delivered(numbers)
            return
        chunk = turn.chunk
        chunk.answered(numbers, answers, _now(), connected=connected)
        for number in chunk.pending_of(numbers):
            if number not in chunk.attempts or not self._defer(chunk, number):
                turn.is_in_trouble.set()

    async def publish(self, turn: ChunkTurn, numbers: list[int], exchange: str) -> bool:
        """Publish until none of these is pending; return False if the node stops before."""
        chunk = turn.chunk
        outcomes, attempts = chunk.outcomes, chunk.attempts
        while todo := [n for n in numbers if outcomes[n] is Outcome.PENDING]:
            if attempts.get(todo[0]):
                if self._defer(chunk, todo[0]):
                    continue
                delay_s = retry_delay_s(self._rule, attempts[todo[0]], self._context.random)
                if delay_s is None:
                    if not await self.bury(chunk, todo[0]):
                        return False
                    continue
                self._save(chunk)
                self._stand(f"refused {attempts[todo[0]]} times: {chunk.reasons[todo[0]]}")
                # Counted from its own refusal: messages refused together do not wait in turns.
                due = chunk.refused_at[todo[0]] + delay_s
                if not await self._context.sleep(max(0.0, due - _now())):
                    return False
                if self._context.held and not await self.released():
                    return False
                todo = todo[:1]
            elif attempts:
                todo = list(takewhile(lambda n: n not in attempts, todo))
            if not await self.attempt(turn, todo, exchange):
                return False
        self._stand("")
        return True

    async def released(self) -> bool:
        """Wait while an operator holds the site; False if the node stops before."""
        self._stand(self._context.held)
        try:
            return await self._context.unless_stopping(self._context.released)
        finally:
            self._stand("")

    async def attempt(self, turn: ChunkTurn, numbers: list[int], exchange: str) -> bool:
        """Publish these once and note the outcomes; return False if the node stops before.

        Messages that the broker never takes, as the attempt before showed, go to the quarantine.
        """
        chunk = turn.chunk
        now_ms = self._context.now_ms()
        if chunk.expire(numbers, now_ms):
            numbers = [n for n in numbers if chunk.outcomes[n] is Outcome.PENDING]
        for number in [
            n for n in sorted(chunk.reasons) if n in numbers and n not in chunk.attempts
        ]:
            if not await self._quarantine(chunk, number):
                return False
            numbers.remove(number)
        sent, messages = chunk.outgoing(numbers, now_ms)
        if not messages:
            return True  # all expired, or found unreadable just now
        if self._has_large(one.body for one in messages):
            ready = await self._context.or_stop(self._referred(messages))
            if ready is None:
                return False
            messages = ready
        await self._announce(chunk)  # what waited for the store is in no doubt
        on_sent = turn.handed_over if len(messages) == len(chunk) else None
        answers = await self._send(exchange, messages, on_sent)
        if answers is None:
            return False  # nothing was sent: no connection, or a refusal
        self._answered(turn, sent, answers, connected=not self._connection_lost)
        return True

    def has_large(self, chunk: DeliveryChunk) -> bool:
        """True if a message of the chunk is to go out without its body."""
        return self._has_large(chunk.entry(n).body for n in range(len(chunk)))

    def _has_large(self, bodies: Iterable[bytes]) -> bool:
        rule = self._context.referring(self._flow.exchange)
        return rule is not None and any(len(body) > rule.above for body in bodies)

    async def _referred(self, messages: Sequence[Outgoing]) -> Sequence[Outgoing]:
        rule, contents = self._context.referring(self._flow.exchange), self._context.contents
        if rule is None or contents is None:
            return messages
        has_stood = False

        def stand(why: str) -> None:
            nonlocal has_stood
            has_stood = True
            self._stand(why)

        ready = [
            await referred(one, contents, rule, stand) if len(one.body) > rule.above else one
            for one in messages
        ]
        if has_stood:
            self._stand("")
        return ready

    async def _send(
        self,
        exchange: str,
        messages: Sequence[Outgoing],
        on_sent: Callable[[object], None] | None = None,
    ) -> list[Answer] | None:
        """Hand over to the site's broker, however long away; return None when the node stops."""
        while True:
            local = await self._context.exchange()
            if local is None:
                return None
            try:
                answers = await local.publish(
                    exchange,
                    messages,
                    timeout_s=self._context.settings.confirm_timeout_s,
                    on_sent=on_sent,
                )
            except (ExchangeMissing, ExchangeRefused) as error:
                self._stand(str(error))
                if not await self._context.sleep(self._context.settings.parked_poll_s):
                    return None
            except LocalClosed as error:
                self._stand(f"the site's broker is away: {error}")
                if not await self._context.sleep(0.05):
                    return None
            else:
                self._connection_lost = local.closed.done()
                return answers

    async def bury(self, chunk: DeliveryChunk, number: int) -> bool:
        """Send a message that was refused too often to the dead letters; return False if the node
        stops before.
        """
        letter = dead_letter_of(chunk, number, self._context.settings)
        return await self._put_aside(chunk, number, letter, Outcome.DEAD)

    async def _quarantine(self, chunk: DeliveryChunk, number: int) -> bool:
        """Send a message to the quarantine."""
        kept = quarantined_of(chunk, number, self._context.settings)
        return await self._put_aside(chunk, number, kept, Outcome.QUARANTINED)

    async def _put_aside(
        self, chunk: DeliveryChunk, number: int, message: Outgoing, outcome: Outcome
    ) -> bool:
        """Publish until the site's queue has the message; False if the node stops before."""
        await self._announce(chunk)
        while True:
            queue = message.routing_key.decode()
            answers = await self._send(queue, [message])  # to the exchange of its name
            if answers is None:
                return False
            if answers[0] is Answer.CONFIRMED:
                chunk.outcomes[number] = outcome
                return True
            if answers[0] is Answer.UNSENDABLE:
                message = smaller_form(chunk, number, message, self._context.settings)
                outcome = Outcome.QUARANTINED
                continue
            self._stand(f"queue {queue!r} does not take it: `isthmus apply` declares it")
            if not await self._context.sleep(self._context.settings.parked_poll_s):
                return False

    @property
    def _rule(self) -> RetryRule:
        exchange = self._context.mesh.exchanges.get(self._flow.exchange)
        return exchange.retry if exchange else RetryRule()


def _now() -> float:
    """Time by the clock that measures sleeps."""
    return asyncio.get_running_loop().time()
