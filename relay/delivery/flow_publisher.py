"""Publishing of one flow's messages to the site's broker, until none is pending.

A refused message is tried again alone, flagged, while the flow stands and others go on; after the
last attempt the message is a dead letter. A message sent without an answer is sent again, flagged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import takewhile

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
from relay.delivery.undeliverable import dead_letter_of, quarantined_of, smaller_form
from relay.ledger.rows import Outcome
from relay.retry import retry_delay_s


class FlowPublisher:
    """One flow's publisher. `stand` receives the reason why the flow stands, empty once resumed;
    `save` commits the settled messages of a chunk before a wait.
    """

    def __init__(
        self,
        flow: Flow,
        context: DeliveryContext,
        stand: Callable[[str], None],
        save: Callable[[DeliveryChunk], None],
    ) -> None:
        self._flow = flow
        self._context = context
        self._stand = stand
        self._save = save
        self._connection_lost = False

    async def publish(self, turn: ChunkTurn, numbers: list[int], exchange: str) -> bool:
        """Publish until none of these is pending; return False if the node stops before."""
        chunk = turn.chunk
        outcomes, attempts = chunk.outcomes, chunk.attempts
        while todo := [n for n in numbers if outcomes[n] is Outcome.PENDING]:
            if attempts.get(todo[0]):
                delay_s = retry_delay_s(self._rule, attempts[todo[0]], self._context.random)
                if delay_s is None:
                    if not await self._bury(turn, todo[0]):
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
            if not await self._attempt(turn, todo, exchange):
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

    async def _attempt(self, turn: ChunkTurn, numbers: list[int], exchange: str) -> bool:
        """Publish these once, note the outcomes, and wait for the turn to settle; return False if
        the node stops before.
        """
        chunk = turn.chunk
        now_ms = self._context.now_ms()
        if chunk.expire(numbers, now_ms):
            numbers = [n for n in numbers if chunk.outcomes[n] is Outcome.PENDING]
        for number in [
            n for n in sorted(chunk.reasons) if n in numbers and n not in chunk.attempts
        ]:
            if not await self._quarantine(turn, number):
                return False
            numbers.remove(number)
        sent, messages = chunk.outgoing(numbers, now_ms)
        if not messages:
            return True  # all expired, or found unreadable just now
        answers = await self._send(exchange, messages, turn, whole=len(messages) == len(chunk))
        if answers is None:
            return False  # nothing was sent: no connection, or a refusal
        chunk.sent.update(sent)
        if answers.count(Answer.CONFIRMED) == len(answers):
            chunk.delivered(sent)
        else:
            turn.is_in_trouble = True
            chunk.answered(sent, answers, _now(), connected=not self._connection_lost)
        return await turn.first()

    async def _send(
        self, exchange: str, messages: Sequence[Outgoing], turn: ChunkTurn, *, whole: bool = False
    ) -> list[Answer] | None:
        """Hand over to the site's broker, however long away; return None when the node stops.
        `whole`: these are all messages of the chunk.
        """
        while True:
            local = await self._context.exchange()
            if local is None:
                return None
            if turn.is_behind_trouble:
                # Chunks before have to be sent again, and come first.
                if not await turn.first():
                    return None
                continue
            try:
                answers = await local.publish(
                    exchange,
                    messages,
                    timeout_s=self._context.settings.confirm_timeout_s,
                    on_sent=turn.handed_over if whole else None,
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
            if not await turn.first():
                return None

    async def _bury(self, turn: ChunkTurn, number: int) -> bool:
        """Send a message that was refused too often to the dead letters."""
        letter = dead_letter_of(turn.chunk, number, self._context.settings)
        return await self._put_aside(turn, number, letter, Outcome.DEAD)

    async def _quarantine(self, turn: ChunkTurn, number: int) -> bool:
        """Send a message to the quarantine."""
        kept = quarantined_of(turn.chunk, number, self._context.settings)
        return await self._put_aside(turn, number, kept, Outcome.QUARANTINED)

    async def _put_aside(
        self, turn: ChunkTurn, number: int, message: Outgoing, outcome: Outcome
    ) -> bool:
        """Publish until the site's queue has the message; False if the node stops before."""
        chunk = turn.chunk
        while True:
            queue = message.routing_key.decode()
            answers = await self._send(queue, [message], turn)  # to the exchange of its name
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
