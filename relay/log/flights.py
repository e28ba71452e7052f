"""Batches on their way into the log.

All batches of one turn of the event loop go out together. A batch that goes down with a connection
is in doubt until the log is read back.
"""

from __future__ import annotations

import asyncio
import math
from functools import partial

from relay.batches.batch import BatchHeader, BatchName, LoggedBatch
from relay.log.hot_tail import HotTail
from relay.log.knowledge import LogKnowledge
from relay.log.run import Appended, LogSettings
from relay.log.site_log import LogClosed, LogRefused, SiteLog, SiteLogError
from relay.tracing.batch_trace import BatchTrace

LAST_BYTES_S = 1.0
"""Time within which a broker handles what a connection that is gone has left in its socket."""


class _Flight:
    """A batch on its way into the log."""

    __slots__ = ("data", "followers", "future", "header")

    def __init__(self, header: BatchHeader, data: bytes, future: asyncio.Future[Appended]) -> None:
        self.header = header
        self.data = data
        self.future = future
        self.followers: list[asyncio.Future[Appended]] = []

    def fail(self, error: SiteLogError) -> None:
        for future in (self.future, *self.followers):
            if not future.done():
                future.set_exception(type(error)(str(error)))


class Flights:
    """Batches on their way into the log, appended in the order in which they come.

    Confirmed batches go into `knowledge` and `tail`; `hurry` is set where much waits to be read
    back.
    """

    def __init__(
        self,
        knowledge: LogKnowledge,
        tail: HotTail,
        settings: LogSettings,
        hurry: asyncio.Event,
        trace: BatchTrace | None = None,
    ) -> None:
        self._knowledge = knowledge
        self._tail = tail
        self._settings = settings
        self._hurry = hurry
        self._trace = trace
        self._log: SiteLog | None = None
        self._why_not = "connecting"
        self._queue: list[_Flight] = []
        self._flying: dict[BatchName, _Flight] = {}
        self._flush_scheduled = False
        self._doubt_at = -math.inf
        """Time from which on, but for LAST_BYTES_S, nothing of an earlier connection can come."""
        self.ended_answered = False
        """True if nothing can come into the log any more once the last connection has ended: the
        log had answered all, and what an earlier connection left had its time to come."""

    def begin(self, log: SiteLog) -> None:
        """Append over this connection, which was checked."""
        self._log = log
        self._doubt_at = asyncio.get_running_loop().time()
        self.ended_answered = False

    def end(self, reason: str) -> None:
        """Note that the connection is gone. Batches not handed to it fail at once, the rest as it
        reports.
        """
        self._log, self._why_not = None, reason
        age_s = asyncio.get_running_loop().time() - self._doubt_at
        self.ended_answered = not self._flying and age_s >= LAST_BYTES_S
        queue, self._queue = self._queue, []
        for flight in queue:
            del self._flying[flight.header.name]
            flight.fail(LogClosed(f"the log's connection ended: {reason}"))

    def append(self, header: BatchHeader, data: bytes) -> asyncio.Future[Appended]:
        """See `LogWriter.append_nowait`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Appended] = loop.create_future()
        name = header.name
        if name in self._knowledge.logged:
            self._knowledge.counts.already_logged += 1
            future.set_result(Appended.ALREADY_LOGGED)
        elif (flight := self._flying.get(name)) is not None:
            flight.followers.append(future)
        elif self._log is None:
            future.set_exception(LogClosed(f"the log is not connected: {self._why_not}"))
        elif len(data) > (most := self._log.max_record_bytes):
            future.set_exception(LogRefused(f"{name}: {len(data)} bytes, the log takes {most}"))
        else:
            flight = _Flight(header, data, future)
            self._flying[name] = flight
            self._queue.append(flight)
            if self._trace is not None:
                self._trace.logging(header, data)
            if not self._flush_scheduled:
                # All batches of one turn of the loop go in one frame, and so into one chunk.
                self._flush_scheduled = True
                loop.call_soon(self._flush)
        return future

    def _flush(self) -> None:
        self._flush_scheduled = False
        flights, self._queue = self._queue, []
        if not flights:
            return
        assert self._log is not None  # else `end` has emptied the queue
        for flight in flights:
            self._knowledge.submitted(flight.header)
        self._log.submit([flight.data for flight in flights], partial(self._landed, flights))

    def _landed(self, flights: list[_Flight], error: SiteLogError | None) -> None:
        if error is not None:
            self._doubt_at = asyncio.get_running_loop().time()
            self._knowledge.recent.in_doubt(flight.header.name for flight in flights)
            for flight in flights:
                del self._flying[flight.header.name]
                flight.fail(error)
            return
        knowledge, tail, flying = self._knowledge, self._tail, self._flying
        for flight in flights:
            header = flight.header
            place = knowledge.confirmed(header)
            tail.append(LoggedBatch(place, header, flight.data))
            del flying[place.name]
        tail.appended()  # readers first: their batches have the longest way to go
        for flight in flights:
            if not flight.future.done():
                flight.future.set_result(Appended.LOGGED)
            for follower in flight.followers:
                knowledge.counts.already_logged += 1
                if not follower.done():
                    follower.set_result(Appended.ALREADY_LOGGED)
        if self._trace is not None:
            for flight in flights:
                self._trace.logged(flight.header)
        knowledge.counts.appended_batches += len(flights)
        knowledge.counts.stored_bytes += sum(len(flight.data) for flight in flights)
        if knowledge.recent.unchecked_count > self._settings.read_after_names:
            self._hurry.set()

    def data_of(self, name: BatchName) -> bytes | None:
        """Bytes of a batch on its way or appended just now, or None."""
        flight = self._flying.get(name)
        return self._tail.data_of(name) if flight is None else flight.data
