"""Publishing end of a measurement at one site."""

from __future__ import annotations

import asyncio
import ssl
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from isthmus.load.messages import Bodies, messages
from relay.bulk_amqp import Cluster, Connection, Publication, Publisher, connect

_GROUP = 256
_GROUP_BYTES = 256 * 1024
WINDOW_BYTES = 4 * 1024 * 1024
"""Limit of unconfirmed bytes: beyond, the broker keeps messages in memory; below, the broker waits.
"""
_ROOM_S = 0.002
"""Seconds between looks for room."""
_TIMERS_NS = 2_000_000
"""Usual lateness of a timer."""


class RunSource(ABC):
    """Publisher of one origin's messages, at a broker of any kind; `run` tells measurements apart.

    `sent`, `confirmed` and `refused` count messages.
    """

    def __init__(self, run: bytes, origin: int, bodies: Bodies) -> None:
        self.sent = self.confirmed = self.refused = 0
        self._run, self._origin, self._bodies = run, origin, bodies
        self._group = max(1, min(_GROUP, _GROUP_BYTES // bodies.mean_bytes))
        self._window = max(WINDOW_BYTES, 2 * bodies.mean_bytes)

    @abstractmethod
    async def open(self) -> None:
        """Connect and start the publisher."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def confirm(self) -> None:
        """Wait until the broker has answered for all messages."""

    @abstractmethod
    async def _publish(self, times_ns: list[int]) -> None:
        """Publish a message for each due time, and wait while too many are unanswered."""

    @property
    def unanswered(self) -> int:
        """Messages without an answer of the broker so far."""
        return self.sent - self.confirmed - self.refused

    async def publish(
        self,
        count: int | None = None,
        *,
        going: Callable[[], bool] = lambda: True,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        """Publish `count` messages, or until `going` is false, as fast as the broker confirms and
        `has_room` allows.
        """
        end = None if count is None else self.sent + count
        while going() and (end is None or self.sent < end):
            if not has_room():
                await asyncio.sleep(_ROOM_S)
                continue
            number = self._group if end is None else min(self._group, end - self.sent)
            await self._publish([time.monotonic_ns()] * number)
        await self.confirm()

    async def publish_at(
        self,
        per_second: float,
        count: int | None = None,
        *,
        burst: int = 1,
        going: Callable[[], bool] = lambda: True,
    ) -> None:
        """Publish `per_second` messages, in bursts of `burst`: `count` of them, or until `going` is
        false.

        A message held up by back pressure carries the time when it was due, so that its wait counts
        as latency.
        """
        end = None if count is None else self.sent + count
        began, first = time.monotonic_ns(), self.sent
        while going() and (end is None or self.sent < end):
            now = time.monotonic_ns()
            due = first + (int((now - began) * per_second / 1e9) // burst + 1) * burst
            due = min(due, self.sent + self._group, due if end is None else end)
            if due > self.sent:
                times = [
                    began + int((number - first) // burst * burst * 1e9 / per_second)
                    for number in range(self.sent, due)
                ]
                await self._publish([now if now - at < _TIMERS_NS else at for at in times])
            next_at = began + (self.sent - first) // burst * burst * 1e9 / per_second
            ahead = next_at - time.monotonic_ns()
            if ahead > 0:
                await asyncio.sleep(ahead / 1e9)
        await self.confirm()


class LoadSource(RunSource):
    """Publisher over AMQP.

    `refused_numbers` are those nacked, or unanswered when the connection ended, and may arrive
    nevertheless.
    """

    def __init__(
        self,
        uri: str | Cluster,
        run: bytes,
        origin: int,
        exchange: str,
        bodies: Bodies,
        *,
        key: bytes = b"bench.load",
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(run, origin, bodies)
        self.refused_numbers: set[int] = set()
        self._uri, self._ssl_context = uri, ssl_context
        self._exchange, self._key = exchange, key
        self._connection: Connection | None = None
        self._publisher: Publisher | None = None
        self._under_way: deque[Publication] = deque()

    async def open(self) -> None:
        """Connect and start the publisher. Raises the errors of `connect`."""
        self._connection = await connect(
            self._uri, name="isthmus load: source", ssl_context=self._ssl_context
        )
        self._publisher = Publisher(await self._connection.channel())
        await self._publisher.start()

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    @property
    def blocked(self) -> str:
        """Reason why the broker blocks publishers (memory, disk); empty if none."""
        return (self._connection.blocked or "") if self._connection is not None else ""

    async def confirm(self) -> None:
        """Wait until the broker has answered for all messages."""
        while self._under_way:
            await self._oldest()

    async def _publish(self, times_ns: list[int]) -> None:
        assert self._publisher is not None
        tails = self._bodies.take(len(times_ns))
        group = messages(
            self._exchange, self._key, self._run, self._origin, self.sent, times_ns, tails
        )
        self._under_way.append(self._publisher.publish_many(group))
        self.sent += len(group)
        await self._publisher.drain()
        while self._under_way and self._under_way[0].outcome is not None:
            await self._oldest()
        while self._publisher.unconfirmed_bytes > self._window:
            await self._oldest()

    async def _oldest(self) -> None:
        assert self._publisher is not None
        outcome = await self._publisher.wait(self._under_way[0])
        # Only now: a caller that gives up waiting and closes still gets the outcome.
        self._under_way.popleft()
        refused = {*outcome.nacked, *outcome.unknown}
        # The one publisher counts from 1.
        self.refused_numbers.update(sequence - 1 for sequence in refused)
        self.refused += len(refused)
        self.confirmed += outcome.last - outcome.first + 1 - len(refused)
