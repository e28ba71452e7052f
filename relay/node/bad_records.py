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
"""Offset of a record that came over a link, not from a log."""


class BadRecords:
    """Bad records of one site, in the order in which they were found. Those left over by one run of
    the stages are put aside in the next.
    """

    def __init__(self, queue: str) -> None:
        """`queue` is the quarantine, which has an exchange of the same name."""
        self._queue = queue
        self._logged_reason = ""
        self._waiting: deque[Outgoing] = deque()
        self._more = asyncio.Event()

    def add(self, offset: int, data: bytes, reason: str) -> None:
        """Add a record of the log; never blocks."""
        self._waiting.append(
            quarantined_bytes(data, queue=self._queue, reason=reason, offset=offset)
        )
        self._more.set()

    def add_from_link(self, data: bytes, reason: str) -> None:
        """Add a record that came over a link; never blocks."""
        self.add(NO_OFFSET, data, reason)

    async def run(self, context: DeliveryContext) -> None:
        """Publish each record until the site's broker confirms it; return when the stages end."""
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
                answers = [Answer.UNKNOWN]  # the deliverer, which owns the connection, reports it
            except (ExchangeMissing, ExchangeRefused) as error:
                self._log_once(str(error))
                answers = [Answer.UNKNOWN]
            if answers[0] is Answer.CONFIRMED:
                self._logged_reason = ""
                self._waiting.popleft()
                context.counters.quarantined += 1
            else:
                await asyncio.sleep(TRY_AGAIN_S)

    def _log_once(self, reason: str) -> None:
        """Log the reason, once until a record is put aside again."""
        if reason != self._logged_reason:
            log.error(
                "a record that is no batch waits for the quarantine: %s",
                reason,
                extra={"event": "bad-record-waits"},
            )
        self._logged_reason = reason
