"""Connection of one end of a link, made again whenever it goes.

Sender and receiver share this code, and bring the work to do over a connection. Each end waits for
the site's log before connecting: without a log there is nothing to send, and nowhere to put
batches.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from relay import ticks
from relay.links.transport.link_end import LinkConnector, LinkEnd, LinkTransportError
from relay.log.writer import LogWriter
from relay.retry import reconnect_delay_s

log = logging.getLogger(__name__)

MOST_WAIT_S = 1.0
"""Longest nap while batches are under way, whatever the machine's `wakeup`."""
RESTING_WAIT_S = 5.0
"""Longest nap while nothing is under way: a hub has hundreds of links, most of them at rest."""
LASTED_S = 10.0
"""Life of a good connection, after which the wait before the next is a short one again."""


class Clock(Protocol):
    """Clocks that a link needs."""

    def now(self) -> float:
        """Return seconds that never go back."""
        ...

    def wall_ms(self) -> int:
        """Return milliseconds since 1970."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkParts:
    """Parts that either end of a link is made of."""

    name: str
    """Name of the link, for log lines."""
    connector: LinkConnector
    writer: LogWriter
    clock: Clock
    random: Callable[[], float]
    """Return a number in [0, 1), for the jitter of waits."""


class LinkConnection:
    """Keeper of one end's connection; `name` is for log lines."""

    def __init__(self, name: str, parts: LinkParts) -> None:
        self.wake = asyncio.Event()
        """Event set by whatever needs the attention of this end's driver."""
        self._name = name
        self._connector = parts.connector
        self._writer = parts.writer
        self._clock = parts.clock
        self._random = parts.random
        self._end: LinkEnd | None = None
        self._nap_ends = 0.0

    @property
    def blocked(self) -> bool:
        """True while the meeting broker takes no publishes on this end's connection."""
        return self._end is not None and self._end.status.blocked

    async def keep(
        self,
        live: Callable[[LinkEnd], Awaitable[str]],
        not_connected: Callable[[str], Awaitable[None]],
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Connect, and reconnect whenever the connection goes, as long as `wanted` returns True.

        `live` serves a connection until its end and returns the reason; `not_connected` is called
        with the reason of a failure.
        """
        failures = 0
        while wanted():
            await self._writer.running()
            try:
                self._end = await self._connector.connect()
            except LinkTransportError as error:
                await not_connected(error.reason)
                await self._pause(failures)
                failures += 1
                continue
            began = self._clock.now()
            reason = await live(self._end)
            failures = 0 if self._clock.now() - began > LASTED_S else failures + 1
            log.info(
                "link %s: %s", self._name, reason, extra={"event": "link-ended", "link": self._name}
            )
            if wanted():
                await self._pause(failures)

    async def _pause(self, failures: int) -> None:
        await asyncio.sleep(reconnect_delay_s(failures, self._random))

    async def nap(self, due: float | None, most_s: float = MOST_WAIT_S) -> None:
        """Wait until `wake` is set, which happens at `due` or after `most_s` at the latest."""
        now = self._clock.now()
        loop = asyncio.get_running_loop()
        wait = most_s if due is None else min(most_s, max(0.0, due - now))
        wait = ticks.no_less_than(wait, loop.time())
        self._nap_ends = now + wait
        timer = loop.call_later(wait, self.wake.set)
        try:
            await self.wake.wait()
        finally:
            timer.cancel()

    def wake_by(self, due: float | None) -> None:
        """Make sure that the driver is awake by `due`."""
        if due is not None and due < self._nap_ends:
            self.wake.set()

    def send(self, frame: bytes) -> None:
        """Hand a frame to the connection; do nothing before the first connection."""
        if self._end is not None:
            self._end.send(frame)

    def abort(self, reason: str) -> None:
        """Drop the connection at once."""
        if self._end is not None:
            self._end.abort(reason)

    async def close(self) -> None:
        """Close what is open; idempotent."""
        if self._end is not None:
            await self._end.close()
