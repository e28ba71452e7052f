"""Publishes a measurement's messages at one site, with confirms."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable

from isthmus.load.bodies import Bodies
from isthmus.load.message import messages
from relay.bulk_amqp import Cluster, Connection, Publication, Publisher, connect

_GROUP = 256
_GROUP_BYTES = 256 * 1024
WINDOW_BYTES = 4 * 1024 * 1024
"""What may be unconfirmed: more has a broker keep it in memory, less has it wait."""
_ROOM_S = 0.002
"""Until it is looked again whether there is room."""
_TIMERS_NS = 2_000_000
"""By how much a timer may be late on its own."""


class LoadSource:
    """One origin's. `run` tells the messages of one measurement from all others.

    `sent`, `confirmed` and `refused` (nacked, or without an answer when the connection went) count
    messages; `refused_numbers` are the latter's, which may arrive all the same.
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
        self.sent = self.confirmed = self.refused = 0
        self.refused_numbers: set[int] = set()
        self._uri, self._ssl_context = uri, ssl_context
        self._run, self._origin = run, origin
        self._exchange, self._key, self._bodies = exchange, key, bodies
        self._group = max(1, min(_GROUP, _GROUP_BYTES // bodies.mean_bytes))
        self._window = max(WINDOW_BYTES, 2 * bodies.mean_bytes)
        self._connection: Connection | None = None
        self._publisher: Publisher | None = None
        self._under_way: deque[Publication] = deque()

    async def open(self) -> None:
        """Raises what `connect` raises."""
        self._connection = await connect(
            self._uri, name="isthmus load: source", ssl_context=self._ssl_context
        )
        self._publisher = Publisher(await self._connection.channel())
        await self._publisher.start()

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    @property
    def unanswered(self) -> int:
        """Messages that the broker has not answered for yet."""
        return self.sent - self.confirmed - self.refused

    @property
    def blocked(self) -> str:
        """Why the broker takes no publishes (memory, disk); empty while it does."""
        return (self._connection.blocked or "") if self._connection is not None else ""

    async def publish(
        self,
        count: int | None = None,
        *,
        going: Callable[[], bool] = lambda: True,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        """As fast as the broker confirms, and others say that they have room: `count` more, and as
        long as it is `going`.
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
        """So many a second, each at its own time, or each `burst` of them at one: `count` more, and
        as long as it is `going`.

        A message that the broker's back pressure held up bears the time when it was due, so that
        what waits here counts as under way.
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

    async def confirm(self) -> None:
        """Until the broker has answered for all that was sent."""
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
        # Not before: whoever gives up waiting, and closes, still learns what became of it.
        self._under_way.popleft()
        refused = {*outcome.nacked, *outcome.unknown}
        # The one publisher counts from 1.
        self.refused_numbers.update(sequence - 1 for sequence in refused)
        self.refused += len(refused)
        self.confirmed += outcome.last - outcome.first + 1 - len(refused)
