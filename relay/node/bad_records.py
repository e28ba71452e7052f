"""Records of the log, or of a link, that are no batches: on their way to the quarantine."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from relay.delivery.context import DeliveryContext
from relay.delivery.local_exchange import (
    Answer,
    ExchangeMissing,
    ExchangeRefused,
    LocalClosed,
    Outgoing,
)
from relay.delivery.undeliverable import quarantined_bytes

log = logging.getLogger(__name__)

TRY_AGAIN_S = 1.0
CONFIRMED_WITHIN_S = 30.0
NO_OFFSET = -1
"""Of what came over a link: it stands in no log."""


class BadRecords:
    """One site's, in the order in which they were found; what a run of the stages has not put
    aside is the next run's.
    """

    def __init__(self, queue: str) -> None:
        """`queue` is the quarantine, which has an exchange of its own name."""
        self._queue = queue
        self._said = ""
        self._waiting: deque[Outgoing] = deque()
        self._more = asyncio.Event()

    def add(self, offset: int, data: bytes, reason: str) -> None:
        """Of the log; never blocks."""
        self._waiting.append(
            quarantined_bytes(data, queue=self._queue, reason=reason, offset=offset)
        )
        self._more.set()

    def add_from_link(self, data: bytes, reason: str) -> None:
        """Of a link; never blocks."""
        self.add(NO_OFFSET, data, reason)

    async def run(self, context: DeliveryContext) -> None:
        """Until the stages end: each one until the site's broker has it."""
        while True:
            while not self._waiting:
                self._more.clear()
                await self._more.wait()
            local = await context.exchange()
            if local is None:
                return
            try:
                answers = await local.publish(
                    self._queue, [self._waiting[0]], timeout_s=CONFIRMED_WITHIN_S
                )
            except LocalClosed:
                answers = [Answer.UNKNOWN]  # said by the deliverer, whose connection it is
            except (ExchangeMissing, ExchangeRefused) as error:
                self._say(str(error))
                answers = [Answer.UNKNOWN]
            if answers[0] is Answer.CONFIRMED:
                self._said = ""
                self._waiting.popleft()
                context.counters.quarantined += 1
            else:
                await asyncio.sleep(TRY_AGAIN_S)

    def _say(self, reason: str) -> None:
        """Once, until one is put aside again."""
        if reason != self._said:
            log.error("a record that is no batch waits for the quarantine: %s", reason)
        self._said = reason
