"""Batches appended last, in memory, for readers that have caught up.

Reading a small batch back from a stream costs the broker 240 us and a millisecond of delay; the
node that appends has the batch at hand. The tail is the *confirmed prefix in the order of
appending*, and is bounded: a reader that falls out of the tail reads the stream, and changes over
at a batch that is in both.

Batches in the tail are numbered, for good: numbers are never used again, so that a reader's number
from before a `restart` is not taken for a present one.

Most batches are not for every reader: a hub has a reader for each of its hundreds of shops, and no
batch goes back over the link by which it came. So a reader may name the batches that it waits for
(`Wish`): other batches wake the reader only now and then, often enough that it notes what it has
passed over and does not fall out of the tail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from relay.batches.batch import EVERY_SITE, BatchHeader, BatchName, LoggedBatch
from relay.waiters import Waiters

MAX_BYTES = 8 * 1024 * 1024
LOOK_S = 1.0
"""Longest time that batches for others stay unread by a waiting reader."""
LOOK_A_READER_S = 0.05
"""Time, for each waiting reader, that batches for others stay unread, up to `LOOK_S`. A link's lag
counts them until they are read."""
_OVERHEAD_BYTES = 1024
"""Memory of a batch beside its data: header, names and places as Python objects."""


class Wish(NamedTuple):
    """Batches that a reader waits for: for one of `sites` or for every site, and wanted."""

    sites: tuple[str, ...]
    """Cluster IDs."""
    wants: Callable[[BatchHeader], bool]


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
        self._choosy: dict[asyncio.Future[None], Wish] = {}
        """Waiting readers with a wish, in order of arrival."""
        self._choosy_for: dict[str, dict[asyncio.Future[None], Wish]] = {}
        """Waiting readers with a wish by site whose batches they wait for."""
        self._new: list[BatchHeader] = []
        """Batches appended since the last `appended`."""
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
        self._new.append(batch.header)
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
        batch = self.batch(name)
        return None if batch is None else batch.data

    def batch(self, name: BatchName) -> LoggedBatch | None:
        """Batch of this name, or None if it is not in the tail."""
        number = self._numbers.get(name)
        return None if number is None else self._batches[number]

    def changed(self, wish: Wish | None = None) -> asyncio.Future[None]:
        """Future of the next `wake`, or of a batch appended: any batch, or one by this wish (other
        batches count within `LOOK_S`). Cancel the future to stop waiting.
        """
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if wish is None:
            self._waiters.add(waiter)
            waiter.add_done_callback(self._waiters.discard)
            return waiter
        self._choosy[waiter] = wish
        for site in wish.sites:
            self._choosy_for.setdefault(site, {})[waiter] = wish
        waiter.add_done_callback(self._discard)
        return waiter

    def _discard(self, waiter: asyncio.Future[None]) -> None:
        wish = self._choosy.pop(waiter, None)
        if wish is not None:
            for site in wish.sites:
                del self._choosy_for[site][waiter]

    def appended(self) -> None:
        """Wake readers that wait for what was appended since the last call: those with a wish
        first, since these are links, whose batches have the longest way to go.
        """
        new, self._new = self._new, []
        if self._unread_bytes > self._max_bytes // 4:
            self.wake()
            return
        for header in new:
            destinations = header.name.series.destinations
            if destinations == EVERY_SITE:
                _wake_whoever_wants(header, self._choosy)
                continue
            for site in destinations:
                if (waiting := self._choosy_for.get(site)) is not None:
                    _wake_whoever_wants(header, waiting)
        self._waiters.wake()
        if self._look is None and self._choosy:
            look_s = min(LOOK_S, LOOK_A_READER_S * len(self._choosy))
            self._look = asyncio.get_running_loop().call_later(look_s, self.wake)

    def wake(self) -> None:
        """Wake every waiting reader."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
        self._unread_bytes = 0
        for waiter in self._choosy:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.wake()


def _wake_whoever_wants(header: BatchHeader, waiting: dict[asyncio.Future[None], Wish]) -> None:
    for waiter, wish in waiting.items():
        if not waiter.done() and wish.wants(header):
            waiter.set_result(None)
