"""Batches in memory: on their way into the log, and appended last, for readers that have caught up.

Reading a small batch back from a stream costs the broker 240 us and a millisecond of delay; the
node that appends has the batch at hand. The tail is the *confirmed prefix in the order of
appending*, and is bounded: a reader that falls out of the tail reads the stream, and changes over
at a batch that is in both.

Batches in the tail are numbered, for good: numbers are never used again, so that a reader's number
from before a `restart` is not taken for a present one.

A hub has a reader for each of its hundreds of shops, and most batches are for one shop. So a reader
may name the sites whose batches it waits for: other batches wake the reader only now and then,
often enough that it notes what it has passed over and does not fall out of the tail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial

from relay.batches.batch import EVERY_SITE, BatchHeader, BatchName, LoggedBatch
from relay.log.knowledge import LogKnowledge
from relay.log.run import Appended, LogSettings
from relay.log.site_log import LogClosed, LogRefused, SiteLog, SiteLogError
from relay.waiters import Waiters

MAX_BYTES = 8 * 1024 * 1024
LOOK_S = 1.0
"""Longest time that batches for other sites stay unread by a waiting reader."""
_OVERHEAD_BYTES = 1024
"""Memory of a batch beside its data: header, names and places as Python objects."""


class HotTail:
    """The batches appended last: `max_bytes` of them, but always the last batch."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._batches: dict[int, LoggedBatch] = {}
        self._numbers: dict[BatchName, int] = {}
        self._first = 0
        self._next = 0
        self._bytes = 0
        self._before: BatchName | None = None
        self._anchored = False
        self._waiters = Waiters()
        self._choosy: dict[str, Waiters] = {}
        """Waiting readers by site whose batches they wait for."""
        self._new_for: dict[str, None] | None = {}
        """Sites that batches appended since the last `appended` are for, in order, or None if for
        every site."""
        self._unread_bytes = 0
        self._look: asyncio.TimerHandle | None = None

    @property
    def byte_count(self) -> int:
        """Bytes held, with an estimate of the objects' own size."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._batches)

    def append(self, batch: LoggedBatch) -> None:
        """Add the batch that follows in the log. `appended` wakes readers."""
        self._batches[self._next] = batch
        self._numbers[batch.place.name] = self._next
        self._next += 1
        size = len(batch.data) + _OVERHEAD_BYTES
        self._bytes += size
        self._unread_bytes += size
        if self._new_for is not None:
            destinations = batch.header.name.series.destinations
            if destinations == EVERY_SITE:
                self._new_for = None
            else:
                self._new_for.update(dict.fromkeys(destinations))
        while self._bytes > self._max_bytes and len(self._batches) > 1:
            oldest = self._batches.pop(self._first)
            del self._numbers[oldest.place.name]
            self._bytes -= len(oldest.data) + _OVERHEAD_BYTES
            self._before = oldest.place.name
            self._anchored = True
            self._first += 1

    def restart(self, before: BatchName | None, *, anchored: bool) -> None:
        """Forget all batches. `before`: name of the batch before the next one appended (None: the
        next is the log's first); not `anchored`: that name is unknown.
        """
        self._batches.clear()
        self._numbers.clear()
        self._bytes = 0
        self._next += 1  # invalidates every number that a reader may hold
        self._first = self._next
        self._before = before
        self._anchored = anchored
        self.wake()

    def number_after(self, name: BatchName | None) -> int | None:
        """Number of the batch after `name` (None: of the log's first), or None if unknown."""
        if name is not None:
            number = self._numbers.get(name)
            if number is not None:
                return number + 1
        if self._anchored and name == self._before:
            return self._first
        return None

    def is_end(self, number: int) -> bool:
        """True if the next appended batch gets this number."""
        return number == self._next

    def take(self, number: int, max_bytes: int) -> list[LoggedBatch] | None:
        """Batches from `number` on, at least one if there is any, up to about `max_bytes`; None if
        the number has fallen out.
        """
        if number < self._first:
            return None
        taken: list[LoggedBatch] = []
        size = 0
        while (batch := self._batches.get(number)) is not None:
            size += len(batch.data)
            if taken and size > max_bytes:
                break
            taken.append(batch)
            number += 1
        return taken

    def data_of(self, name: BatchName) -> bytes | None:
        """Bytes of the batch, or None if it is not in the tail."""
        number = self._numbers.get(name)
        return None if number is None else self._batches[number].data

    def changed(self, only_for: Collection[str] | None = None) -> asyncio.Future[None]:
        """Future of the next `wake`, or of a batch appended: any batch, or one for these sites or
        for every site (other batches count within LOOK_S). Cancel the future to stop waiting.
        """
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if only_for is None:
            among = [self._waiters]
        else:
            among = [self._choosy.setdefault(site, Waiters()) for site in only_for]
        for waiters in among:
            waiters.add(waiter)
            waiter.add_done_callback(waiters.discard)
        return waiter

    def appended(self) -> None:
        """Wake readers that wait for what was appended since the last call."""
        new_for, self._new_for = self._new_for, {}
        if new_for is None or self._unread_bytes > self._max_bytes // 4:
            self.wake()
            return
        self._waiters.wake()
        for site in new_for:
            if (waiters := self._choosy.get(site)) is not None:
                waiters.wake()
        if self._look is None and any(self._choosy.values()):
            self._look = asyncio.get_running_loop().call_later(LOOK_S, self.wake)

    def wake(self) -> None:
        """Wake every waiting reader."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
        self._unread_bytes = 0
        self._waiters.wake()
        for waiters in self._choosy.values():
            waiters.wake()


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

    All batches of one turn of the event loop go out together. A batch that goes down with a
    connection is in doubt until the log is read back. Confirmed batches go into `knowledge` and
    `tail`; `hurry` is set where much waits to be read back.
    """

    def __init__(
        self, knowledge: LogKnowledge, tail: HotTail, settings: LogSettings, hurry: asyncio.Event
    ) -> None:
        self._knowledge = knowledge
        self._tail = tail
        self._settings = settings
        self._hurry = hurry
        self._log: SiteLog | None = None
        self._why_not = "connecting"
        self._queue: list[_Flight] = []
        self._flying: dict[BatchName, _Flight] = {}
        self._flush_scheduled = False

    def begin(self, log: SiteLog) -> None:
        """Append over this connection, which was checked."""
        self._log = log

    def end(self, reason: str) -> None:
        """Note that the connection is gone. Batches not handed to it fail at once, the rest as it
        reports.
        """
        self._log, self._why_not = None, reason
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
        knowledge.counts.appended_batches += len(flights)
        knowledge.counts.stored_bytes += sum(len(flight.data) for flight in flights)
        if knowledge.recent.unchecked_count > self._settings.check_after_names:
            self._hurry.set()

    def data_of(self, name: BatchName) -> bytes | None:
        """Bytes of a batch on its way or appended just now, or None."""
        flight = self._flying.get(name)
        return self._tail.data_of(name) if flight is None else flight.data
