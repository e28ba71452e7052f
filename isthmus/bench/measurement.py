"""Course of one measurement: publish, wait for what is under way, report."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from federation.wording import counted
from isthmus.bench.ends import Ends
from isthmus.bench.figures import BenchResult
from relay.bulk_amqp import BulkAmqpError

POLL_S = 0.05
SHOWN_EVERY_S = 1.0
BRIEFLY_S = 5.0
"""Seconds to wait for arrivals after a first Ctrl-C; a second one ends the wait."""
SECOND_COPIES_S = 0.5
"""Seconds to wait for second copies, by other paths, once all has arrived."""


class Measurement:
    """One measurement over connected ends.

    `allowed` runs once all brokers are connected, before any declaration; an exception ends the
    measurement. `show` is called every second.
    """

    def __init__(
        self, ends: Ends, allowed: Callable[[], Awaitable[None]], show: Callable[[], None]
    ) -> None:
        self._ends, self._request, self._allowed, self._show = ends, ends.request, allowed, show
        self._end_requests = 0
        self._problems: list[str] = []
        self._busy = self._busy_before_s = 0.0
        self._published_s: dict[str, float] = {}
        self._end_at = 0.0

    def end(self) -> None:
        """Stop publishing and wait briefly for arrivals; a second call ends the wait."""
        self._end_requests += 1

    async def run(self) -> BenchResult:
        """Measure, and delete the queues however the measurement ends. Raises BrokerAway."""
        left: list[str] = []
        try:
            await self._ends.connect()
            await self._allowed()
            await self._ends.listen()
            await self._measure()
        finally:
            left += await self._ends.close()
        return self._result(left)

    async def _measure(self) -> None:
        self._end_at = asyncio.get_running_loop().time() + self._request.duration_s
        self._busy_before_s = time.process_time()
        publishing = [
            asyncio.create_task(self._publish(site), name=f"bench {site}")
            for site in self._request.origins
        ]
        try:
            await self._until_arrived(publishing)
            for site, task in zip(self._request.origins, publishing, strict=True):
                if not task.done():
                    self._problems.append(self._stuck(site))
        finally:
            for task in publishing:
                task.cancel()
            for gone in await asyncio.gather(*publishing, return_exceptions=True):
                if isinstance(gone, Exception):
                    raise gone
        self._problems += [
            f"{site} listens no more: {why}" for site, why in self._ends.ended().items()
        ]
        for site, source in self._ends.sources.items():
            # A broker that blocks publishers answers no more.
            await source.close()
            await source.confirm()
            self._published_s.setdefault(site, self._ends.seconds)
        if not any(source.confirmed for source in self._ends.sources.values()):
            self._problems.append("no broker confirmed anything that was published")

    async def _until_arrived(self, publishing: list[asyncio.Task[None]]) -> None:
        loop = asyncio.get_running_loop()
        moved, moved_at, shown_at = -1, loop.time(), loop.time()
        while True:
            await asyncio.sleep(POLL_S)
            now = loop.time()
            if now - shown_at >= SHOWN_EVERY_S:
                shown_at += SHOWN_EVERY_S
                self._show()
            if self._moved() != moved or self._is_going():
                moved, moved_at = self._moved(), now
            is_published = all(task.done() for task in publishing)
            if is_published and (not self._ends.waiting or self._ends.ended()):
                await asyncio.sleep(SECOND_COPIES_S)
                return
            if now - moved_at > self._patience_s:
                return

    async def _publish(self, site: str) -> None:
        ends, request = self._ends, self._request
        source = ends.sources[site]
        try:
            if request.per_second is None:
                await source.publish(going=self._is_going, has_room=lambda: ends.has_room(site))
            else:
                await source.publish_at(request.per_second, going=self._is_going)
        except BulkAmqpError as error:
            self._problems.append(f"{site} publishes no more: {error}")
            # Unanswered messages may not arrive, and are not waited for.
            await source.confirm()
        self._published_s[site] = ends.seconds
        # Now, since afterwards the process only waits.
        self._busy = (time.process_time() - self._busy_before_s) / ends.seconds

    def _stuck(self, site: str) -> str:
        source = self._ends.sources[site]
        why = f": it takes no publishes ({source.blocked})" if source.blocked else ""
        messages = counted(source.unanswered, "message")
        return f"the broker of {site} did not answer for {messages}{why}"

    def _is_going(self) -> bool:
        return (
            not self._end_requests
            and not self._problems
            and not self._ends.ended()
            and asyncio.get_running_loop().time() < self._end_at
        )

    @property
    def _patience_s(self) -> float:
        """Seconds to wait for an arrival once publishing has ended."""
        if self._end_requests > 1:
            return 0.0
        return min(self._request.wait_s, BRIEFLY_S) if self._end_requests else self._request.wait_s

    def _moved(self) -> int:
        return self._ends.delivered + sum(
            source.confirmed + source.refused for source in self._ends.sources.values()
        )

    def _result(self, left: list[str]) -> BenchResult:
        ends = self._ends
        return BenchResult(
            self._request,
            {site: ends.published(site) for site in self._request.origins},
            self._published_s,
            list(ends.pairs()),
            sum(sink.strangers for sink in ends.sinks.values()),
            self._busy,
            bool(self._end_requests),
            self._problems,
            left,
        )
