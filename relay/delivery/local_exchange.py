"""Seam between the deliverer and the site's own broker: publish, and learn the outcome.

An object is one connection; once `closed`, for good. Twins: `rabbit_exchange.RabbitExchange` and
`memory_exchange.MemoryExchange`; the same contract suite runs over both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol


class Outgoing(NamedTuple):
    """Message on its way to the local broker. `properties` are raw content-header bytes."""

    routing_key: bytes
    properties: bytes
    body: bytes


class Answer(IntEnum):
    """The broker's answer to one publish."""

    CONFIRMED = 0
    """Every queue to which the message was routed has a copy."""
    UNROUTED = 1
    """Confirmed, and returned: no queue wanted the message."""
    REFUSED = 2
    """Negatively acknowledged: some queue refused, others may have a copy."""
    UNKNOWN = 3
    """Sent, without an answer: time-out, or the connection went."""
    UNSENDABLE = 4
    """Never taken: the properties exceed a frame, or the body exceeds the broker's limit."""


class LocalExchangeError(Exception):
    """Root of the errors that a local exchange raises.

    LocalExchangeError
    +- ExchangeMissing     the exchange is not declared; nothing of the call was published
    +- ExchangeRefused     the node's user may not write there; nothing was published either
    +- DelivererLockHeld   another node delivers at this site
    +- LocalClosed         the connection is gone and nothing of the call was sent
    """


class ExchangeMissing(LocalExchangeError):
    """The exchange is not there: run `isthmus apply`, which declares it. Nothing was published."""

    def __init__(self, exchange: str) -> None:
        super().__init__(f"exchange {exchange!r} is not declared: `isthmus apply` declares it")
        self.exchange = exchange


class ExchangeRefused(LocalExchangeError):
    """The deliverer's user may not write to the exchange: run `isthmus apply`, which grants the
    right. Nothing was published.
    """

    def __init__(self, exchange: str) -> None:
        super().__init__(
            f"the deliverer's user may not write to exchange {exchange!r}: `isthmus apply` gives "
            "it the right"
        )
        self.exchange = exchange


class DelivererLockHeld(LocalExchangeError):
    """Another node holds this site's lock: one node a site. Stop the other, or wait for its end."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"another node holds {queue!r}: only one node may serve a site")
        self.queue = queue


class LocalClosed(LocalExchangeError):
    """The connection to the site's broker is gone; nothing of this call was sent."""


class LocalExchange(Protocol):
    """The site's broker over one connection that holds the deliverer's lock."""

    @property
    def closed(self) -> asyncio.Future[str]:
        """Future with the reason, done once the connection is gone."""
        ...

    @property
    def blocked(self) -> bool:
        """True while the broker takes no publishes (`connection.blocked`)."""
        ...

    @property
    def is_answered(self) -> bool:
        """True if the broker has answered every publish so far, so that none can arrive later."""
        ...

    async def publish(
        self,
        exchange: str,
        messages: Sequence[Outgoing],
        *,
        timeout_s: float,
        on_sent: Callable[[object], None] | None = None,
    ) -> list[Answer]:
        """Publish in this order, mandatory, and wait for every answer; an answer a message.
        `on_sent` gets the channel once all are handed over; not if one is UNSENDABLE.

        A message without an answer within `timeout_s` (which does not run while blocked), or before
        the connection goes, is UNKNOWN. Raises ExchangeMissing, ExchangeRefused and LocalClosed
        when nothing was published.
        """
        ...

    def publish_next(
        self,
        exchange: str,
        messages: Sequence[Outgoing],
        *,
        channel: object,
        timeout_s: float,
    ) -> Coroutine[Any, Any, list[Answer]] | None:
        """Publish at once on the channel of messages that may still await their answers, so behind
        those. Return what waits for the answers, or None, with nothing sent, where that cannot be:
        the channel is another by now, or has brought no answer yet, or a message is UNSENDABLE.
        """
        ...

    async def close(self) -> None:
        """Close; idempotent."""
        ...
