"""A site's broker in memory, for simulation and the deliverer's tests. Same contract suite."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from relay.delivery.local_exchange import (
    Answer,
    ExchangeMissing,
    ExchangeRefused,
    LocalClosed,
    Outgoing,
)

REFUSED_ONE_IN = 8
"""Share of the messages, by their bodies, that go to a full queue alone, and share of those that go
to a full queue and to the queue beside it.
"""


@dataclass(slots=True)
class MemoryBroker:
    """State that outlives connections: exchanges with their queues, and the messages of these.

    `exchanges` maps an exchange to the queues bound to it (all keys). `capacity` makes a queue
    refuse (`reject-publish`) beyond that many messages. The user may not write to `closed`
    exchanges.
    """

    exchanges: dict[str, list[str]] = field(default_factory=dict)
    messages: dict[str, list[tuple[str, Outgoing]]] = field(default_factory=dict)
    capacity: dict[str, int] = field(default_factory=dict)
    beside_full: set[str] = field(default_factory=set)
    """Queues beside a full queue of the same exchange, which is to have some of their messages, and
    others instead of them.
    """
    closed: set[str] = field(default_factory=set)
    most_property_bytes: int = 131072 - 8 - 12
    """Size of properties that fits into one frame."""
    most_body_bytes: int = 128 * 2**20

    def declare(self, exchange: str, *queues: str) -> None:
        self.exchanges.setdefault(exchange, []).extend(queues)
        for queue in queues:
            self.messages.setdefault(queue, [])

    def fits(self, message: Outgoing) -> bool:
        too_big = len(message.properties) > self.most_property_bytes
        return not (too_big or len(message.body) > self.most_body_bytes)

    def refuses(self, queue: str, message: Outgoing) -> bool:
        """Return True if the queue, or a full one beside, refuses the message."""
        return not self._takes(queue, message) or (
            queue in self.beside_full and zlib.crc32(message.body) % REFUSED_ONE_IN == 1
        )

    def _takes(self, queue: str, message: Outgoing) -> bool:
        held = len(self.messages[queue])
        if held >= self.capacity.get(queue, held + 1):
            return False
        return queue not in self.beside_full or zlib.crc32(message.body) % REFUSED_ONE_IN != 0

    def take(self, exchange: str, message: Outgoing) -> Answer:
        if not self.fits(message):
            return Answer.UNSENDABLE
        queues = self.exchanges[exchange]
        refused = False
        for queue in queues:
            refused = refused or self.refuses(queue, message)
            if self._takes(queue, message):
                self.messages[queue].append((exchange, message))
        if refused:
            return Answer.REFUSED
        return Answer.CONFIRMED if queues else Answer.UNROUTED


class MemoryExchange:
    """Connection to a `MemoryBroker`.

    `before_answer` is awaited between the moment when the broker takes a message for an exchange
    and the answer's arrival; the default yields to the loop once, as a socket would.
    """

    def __init__(
        self,
        broker: MemoryBroker,
        before_answer: Callable[[str], asyncio.Future[None]] | None = None,
    ) -> None:
        self._broker = broker
        self._before_answer = before_answer
        self._closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.blocked = False
        self._is_proven = False
        """True once an answer has come: then the user may write here."""
        self._unanswered = 0

    @property
    def closed(self) -> asyncio.Future[str]:
        return self._closed

    @property
    def is_answered(self) -> bool:
        return not self._unanswered

    async def publish(
        self,
        exchange: str,
        messages: Sequence[Outgoing],
        *,
        timeout_s: float,
        on_sent: Callable[[object], None] | None = None,
    ) -> list[Answer]:
        if self._closed.done():
            raise LocalClosed(self._closed.result())
        if exchange not in self._broker.exchanges:
            raise ExchangeMissing(exchange)
        if exchange in self._broker.closed:
            raise ExchangeRefused(exchange)
        answers = self._take(exchange, messages)
        if on_sent is not None and Answer.UNSENDABLE not in answers:
            on_sent(self)
        return await self._answers(exchange, messages, answers, timeout_s)

    def publish_next(
        self,
        exchange: str,
        messages: Sequence[Outgoing],
        *,
        channel: object,
        timeout_s: float,
    ) -> Coroutine[Any, Any, list[Answer]] | None:
        broker = self._broker
        if channel is not self or not self._is_proven or self._closed.done():
            return None
        if exchange not in broker.exchanges or exchange in broker.closed:
            return None
        if not all(map(broker.fits, messages)):
            return None
        answers = self._take(exchange, messages)
        return self._answers(exchange, messages, answers, timeout_s)

    def _take(self, exchange: str, messages: Sequence[Outgoing]) -> list[Answer]:
        answers = []
        self._unanswered += 1
        for message in messages:
            answers.append(self._broker.take(exchange, message))
            if self._closed.done():  # at this very message: the rest stays unsent
                break
        return answers

    async def _answers(
        self, exchange: str, messages: Sequence[Outgoing], answers: list[Answer], timeout_s: float
    ) -> list[Answer]:
        if self._before_answer is None:
            await asyncio.sleep(0)
        else:
            waiting = self._before_answer(exchange)
            self._closed.add_done_callback(lambda _: waiting.cancel())
            await asyncio.wait({waiting}, timeout=timeout_s)
            if not waiting.done() or waiting.cancelled():
                waiting.cancel()
                return [Answer.UNKNOWN] * len(messages)
        if self._closed.done():
            return [Answer.UNKNOWN] * len(messages)
        self._is_proven = True
        self._unanswered -= 1
        return answers

    def break_off(self, reason: str) -> None:
        """Lose the connection, and leave its messages in doubt."""
        if not self._closed.done():
            self._closed.set_result(reason)

    async def close(self) -> None:
        self.break_off("closed")
