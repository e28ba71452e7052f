"""Writes of a slot's owner on their way into the journal, a row at a time.

What is written while a row is under way gathers for the next. A stretch of writes for which nobody
waits gathers for a moment first: a row costs the journal's machines as much as dozens of writes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from dedup.journal.journal import (
    ROW_BYTES,
    Journal,
    JournalAway,
    JournalFull,
    JournalRow,
    Owner,
    SlotFenced,
)
from dedup.journal.journal_row import Writes, encode_row
from dedup.store import Changes, StoreClosed, StoreError, StoreFailed

log = logging.getLogger(__name__)

GATHER_S = 0.05
ROW_TIMES = 256
"""Last rows whose times are kept."""
MOST_WAITING_BYTES = 64 * 1024 * 1024
"""Size of the writes that may wait while no quorum takes rows: hours of a site that stands."""


class JournalWriter:
    """Writer of the rows behind `last_row`. `on_row` gets each row that counts; `failed` is called
    once, with the error that ended the writer. `retry` is awaited before a row is written again,
    with the number of failures in a row.
    """

    def __init__(
        self,
        journal: Journal,
        owner: Owner,
        last_row: int,
        on_row: Callable[[int, Writes], None],
        failed: Callable[[StoreError], None],
        retry: Callable[[int], Awaitable[None]],
    ) -> None:
        self.last_row = last_row
        """Number of the last row that counts."""
        self.away_since: float | None = None
        """Time, by the event loop's clock, since which no quorum answers; None while one does."""
        self.row_times_s: deque[float] = deque(maxlen=ROW_TIMES)
        """Time that each of the last rows took until it counted, attempts that failed left out."""
        self._journal = journal
        self._owner = owner
        self._on_row = on_row
        self._failed = failed
        self._retry = retry
        self._waiting: deque[Writes] = deque()
        """Writes by rows, the oldest first: the row under way, if there is one, then later ones."""
        self.waiting_bytes = 0
        """Size of the writes that are in no row that counts."""
        self._waiters: dict[asyncio.Future[None], Writes] = {}
        self._gathering: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._error: StoreError | None = None

    @property
    def waiting(self) -> deque[Writes]:
        """Writes that are in no row that counts, the oldest first. Not to be changed."""
        return self._waiting

    def add(self, changes: Changes) -> None:
        """Append a write. Raises JournalFull."""
        self._add(lambda row: row.add(changes))

    def clear(self, table: str) -> None:
        """Append the emptying of a table. Raises JournalFull."""
        self._add(lambda row: row.clear(table))

    def _add(self, change: Callable[[Writes], None]) -> None:
        row = self._open_row()
        before = row.size
        change(row)
        self.waiting_bytes += row.size - before
        if self.waiting_bytes > MOST_WAITING_BYTES:
            full = JournalFull(self.waiting_bytes)
            self._end(full)
            raise full
        self._gather()

    async def written(self) -> None:
        """Wait until all that was added so far counts. Raises the error that ends the writer."""
        if self._error is not None:
            raise self._error
        if not self._waiting:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = self._waiting[-1]
        self._hurry()
        try:
            await waiter
        finally:
            self._waiters.pop(waiter, None)

    async def stop(self) -> None:
        """Give up what does not count yet."""
        if self._gathering is not None:
            self._gathering.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._error is None:
            self._end(StoreClosed("the journal is not written any more"))

    def _open_row(self) -> Writes:
        """Return the writes of the next row that has room."""
        is_under_way = self._task is not None and len(self._waiting) == 1
        if not self._waiting or is_under_way or self._waiting[-1].size >= ROW_BYTES:
            self._waiting.append(Writes())
        return self._waiting[-1]

    def _gather(self) -> None:
        if self._task is None and self._gathering is None and self._error is None:
            if self._waiting[0].size >= ROW_BYTES:
                self._hurry()
            else:
                loop = asyncio.get_running_loop()
                self._gathering = loop.call_later(GATHER_S, self._hurry)

    def _hurry(self) -> None:
        """Begin to write, unless rows are being written."""
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        if self._task is None and self._waiting and self._error is None:
            self._task = asyncio.get_running_loop().create_task(self._write_rows())

    async def _write_rows(self) -> None:
        try:
            while self._waiting:
                await self._write_row(self._waiting[0])
                if not self._waiters and self._waiting and self._waiting[0].size < ROW_BYTES:
                    break
        except StoreError as error:
            self._end(error)
        except Exception as error:
            log.exception("the journal's writer ends", extra={"event": "journal-writer-failed"})
            self._end(StoreFailed("write the journal", repr(error)))
        finally:
            self._task = None
        if self._waiting and self._error is None:
            self._gather()

    async def _write_row(self, writes: Writes) -> None:
        row = JournalRow(self.last_row + 1, self._owner.epoch, encode_row(writes))
        failures = 0
        loop = asyncio.get_running_loop()
        while True:
            begun = loop.time()
            try:
                await self._journal.write(row)
                found = await self._journal.ownership()
            except JournalAway as error:
                failures += 1
                if self.away_since is None:
                    self.away_since = loop.time()
                    log.warning(
                        "the journal is away, row %d waits: %s",
                        row.number,
                        error,
                        extra={"event": "journal-away"},
                    )
                await self._retry(failures)
            else:
                break
        if found is None or found.owner != self._owner:
            raise SlotFenced(self._owner.epoch, None if found is None else found.owner)
        self.away_since = None
        self.row_times_s.append(loop.time() - begun)
        self.last_row = row.number
        self._on_row(row.number, writes)
        self._waiting.popleft()
        self.waiting_bytes -= writes.size
        for waiter, last in list(self._waiters.items()):
            if last is writes and not waiter.done():
                waiter.set_result(None)
                del self._waiters[waiter]

    def _end(self, error: StoreError) -> None:
        self._error = error
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(error)
        self._failed(error)
