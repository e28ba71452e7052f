"""Batches appended last, in memory, for readers that have caught up.

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

from relay.batches.batch import EVERY_SITE, BatchName, LoggedBatch
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
