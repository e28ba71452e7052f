"""A site's log in memory, for simulation and fast tests: same contract, faults on demand.

A `MemoryStream` stands for a broker's disk, and outlives the connections to it, each a `MemoryLog`.
Everything happens by the running event loop's clock, so that virtual time works.

Faults:

==========================  =====================================================================
`lose_tail(n)`              the last n records are gone, their offsets are used again (power cut),
                            and the marks that were stored behind them
`truncate_head(offset)`     retention: what is before `offset` is gone `delete()` / `create()`
deleted; made anew, empty `break_connections()`       every connection ends; what was in flight is
lost `break_after_storing()`     at the next append: stored, and the connection ends before the
confirm `hold_next_appends()`       appends get stuck in the connection's socket: break it, and then
`release_held()`            ... its bytes land late, beside its successor's (a zombie's) `hide()`
the log looks empty until an append is confirmed, as a new leader's `append_alien(record)`
someone else writes `skip_offsets(n)`           a hole, as stored marks and segment rolls make them
`reachable = False`         no new connection
==========================  =====================================================================
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context

from relay.log.site_log import (
    MAX_UNCONFIRMED_BYTES,
    LogClosed,
    LogMissing,
    LogRefused,
    Record,
    SiteLogError,
    append_by,
)

_Done = Callable[[SiteLogError | None], None]


class MemoryStream:
    """The durable part. `confirm_s` is the time of an append on the loop's clock."""

    def __init__(self, *, confirm_s: float = 0.0, max_record_bytes: int = 1 << 20) -> None:
        self.confirm_s = confirm_s
        self.max_record_bytes = max_record_bytes
        self.reachable = True
        self.is_replicated = False
        self._is_hidden = False
        self.exists = True
        self.marks: dict[str, int] = {}
        self._marked: list[tuple[int, str, int]] = []
        """Marks in the order of storing: end of the log at that time, name, offset."""
        self._chunks: deque[list[Record]] = deque()
        self._next_offset = 0
        self._logs: list[MemoryLog] = []
        self._held: deque[Sequence[bytes]] = deque()
        self._holding = False
        self._held_connections: Sequence[MemoryLog] | None = None
        self._break_after_storing = False
        self.on_stored: Callable[[], None] = lambda: None
        """Callback when an append is stored and not confirmed yet."""

    async def open(self, *, mark_name: str = "deliverer") -> MemoryLog:
        """Connect. Raises LogClosed when unreachable, LogMissing when deleted."""
        await asyncio.sleep(0)
        if not self.reachable:
            raise LogClosed("no connection: unreachable")
        if not self.exists:
            raise LogMissing("there is no such log")
        log = MemoryLog(self, mark_name)
        self._logs.append(log)
        return log

    @property
    def records(self) -> list[Record]:
        """All stored records."""
        return [record for chunk in self._chunks for record in chunk]

    @property
    def next_offset(self) -> int:
        """Offset of the next record."""
        return self._next_offset

    # Faults

    def lose_tail(self, count: int) -> None:
        """Drop the last `count` records; connections end, as the broker must have."""
        self.break_connections("the broker went down")
        kept = self.records[: -count or None]
        self._chunks = deque([record] for record in kept)
        self._next_offset = kept[-1].offset + 1 if kept else 0
        # Marks lie in the log as well: marks behind the end are gone too.
        self._marked = [mark for mark in self._marked if mark[0] <= self._next_offset]
        self.marks = {name: offset for _, name, offset in self._marked}

    def store_mark(self, name: str, offset: int) -> None:
        """Store a mark at the log's end, where it takes an offset, as in a stream."""
        self._marked.append((self._next_offset, name, offset))
        self.marks[name] = offset
        self._next_offset += 1

    def truncate_head(self, offset: int) -> None:
        """Drop the records before `offset`, whole chunks or not."""
        kept = ([r for r in chunk if r.offset >= offset] for chunk in self._chunks)
        self._chunks = deque(chunk for chunk in kept if chunk)

    def delete(self) -> None:
        """Delete the log; its connections end as LogMissing."""
        self.exists = False
        self._chunks.clear()
        self._held.clear()
        self.marks.clear()
        self._marked.clear()
        self._next_offset = 0
        for log in self._take_logs():
            log.fail(LogMissing("the log was deleted"))

    def create(self) -> None:
        """Make the log anew, empty."""
        self.delete()
        self.exists = True

    def break_connections(self, reason: str = "cut") -> None:
        """End every connection; records in flight are lost unless held."""
        self._holding = False
        for log in self._take_logs():
            log.fail(LogClosed(reason))

    def drop(self, logs: Sequence[MemoryLog], reason: str) -> None:
        """End some of the connections, those of one process."""
        if self._held_connections is None or any(map(self._holds_of, logs)):
            self._holding = False
        for log in logs:
            self.forget(log)
            log.fail(LogClosed(reason))

    def break_after_storing(self) -> None:
        """Let the next append be stored, and end the connection instead of confirming it."""
        self._break_after_storing = True

    def hold_next_appends(self, of: Sequence[MemoryLog] | None = None) -> None:
        """Keep appends from now on unstored until `release_held`: those of these connections, or of
        all.
        """
        self._holding, self._held_connections = True, of

    def _holds_of(self, log: MemoryLog) -> bool:
        """Return True if appends of this connection are kept unstored, while any are."""
        return self._held_connections is None or log in self._held_connections

    def release_held(self) -> None:
        """Store the held appends now; nobody gets a confirm."""
        self._holding = False
        while self._held:
            self._put(self._held.popleft())

    def hide(self) -> None:
        """Act as a newly elected leader of a stream, which knows of no majority's confirm yet."""
        self.break_connections("the log's leader is another one")
        self.is_replicated = self._is_hidden = True

    def append_alien(self, *data: bytes, flaw: str = "") -> None:
        """Store records of another writer; with `flaw`, records that no writer of ours can make."""
        self._put(data, flaw)

    def skip_offsets(self, count: int) -> None:
        """Leave a hole of `count` offsets."""
        self._next_offset += count

    # For connections

    def store(self, records: Sequence[bytes], log: MemoryLog) -> bool:
        """Store an append of `log`; return True if it is to be confirmed."""
        if self._holding and self._holds_of(log):
            self._held.append(records)
            return False
        self._put(records)
        if self._break_after_storing:
            self._break_after_storing = False
            self._logs.remove(log)
            log.fail(LogClosed("cut before the confirm"))
            return False
        self.on_stored()
        return not log.ended

    def forget(self, log: MemoryLog) -> None:
        if log in self._logs:
            self._logs.remove(log)

    def chunk_at(self, offset: int) -> list[Record] | None:
        """Records from `offset` on of the chunk that has `offset` or comes next."""
        for chunk in reversed(self._chunks):
            if chunk[-1].offset < offset:
                break
            found = chunk
        else:
            return [r for r in self._chunks[0] if r.offset >= offset] if self._chunks else None
        if self._chunks[-1][-1].offset < offset:
            return None
        return [r for r in found if r.offset >= offset]

    def ends(self) -> tuple[int | None, int | None]:
        """First and last offset."""
        if not self._chunks or self._is_hidden:
            return None, None
        return self._chunks[0][0].offset, self._chunks[-1][-1].offset

    def last_chunk_offset(self) -> int:
        return self._chunks[-1][0].offset if self._chunks else 0

    def _put(self, data: Sequence[bytes], flaw: str = "") -> None:
        if not self.exists or not data:
            return
        self._is_hidden = False
        start = self._next_offset
        self._chunks.append([Record(start + i, bytes(d), flaw) for i, d in enumerate(data)])
        self._next_offset += len(data)
        for log in self._logs:
            log.wake_cursors()

    def _take_logs(self) -> list[MemoryLog]:
        logs, self._logs = self._logs, []
        return logs


class MemoryLog:
    """SiteLog over a MemoryStream."""

    def __init__(self, stream: MemoryStream, mark_name: str) -> None:
        self._stream = stream
        self._mark_name = mark_name
        self._loop = asyncio.get_running_loop()
        self._process = copy_context()
        """Context of the writer, in which its callbacks run whoever breaks the connection."""
        self._closed: asyncio.Future[str] = self._loop.create_future()
        self._error: SiteLogError | None = None
        self._queue: deque[tuple[Sequence[bytes], _Done]] = deque()
        self._written: deque[tuple[int, _Done]] = deque()
        self._unconfirmed_bytes = 0
        self._lands_at = 0.0
        self._cursors: dict[_MemoryCursor, None] = {}

    @property
    def closed(self) -> asyncio.Future[str]:
        return self._closed

    @property
    def max_record_bytes(self) -> int:
        return self._stream.max_record_bytes

    @property
    def is_replicated(self) -> bool:
        return self._stream.is_replicated

    def submit(self, records: Sequence[bytes], done: _Done) -> None:
        if self._error is not None:
            self._loop.call_soon(done, self.gone())
            return
        for record in records:
            if len(record) > self.max_record_bytes:
                raise LogRefused(
                    f"a record of {len(record)} bytes, the log takes {self.max_record_bytes}"
                )
        if not records:
            raise ValueError("no records")
        self._queue.append((records, done))
        self._write_what_fits()

    async def append(self, records: Sequence[bytes]) -> None:
        await append_by(self.submit, records)

    def _write_what_fits(self) -> None:
        while self._queue:
            records, done = self._queue[0]
            size = sum(map(len, records))
            if self._unconfirmed_bytes and self._unconfirmed_bytes + size > MAX_UNCONFIRMED_BYTES:
                return
            self._queue.popleft()
            self._written.append((size, done))
            self._unconfirmed_bytes += size
            # In order, even if the disk has become faster meanwhile.
            due = self._loop.time() + self._stream.confirm_s
            self._lands_at = max(due, self._lands_at + 1e-9)
            self._loop.call_at(self._lands_at, self._land, records)

    def _land(self, records: Sequence[bytes]) -> None:
        if self._error is not None or not self._stream.store(records, self):
            return
        size, done = self._written.popleft()
        self._unconfirmed_bytes -= size
        done(None)
        if self._error is None:
            self._write_what_fits()

    async def read(
        self, from_offset: int, *, hurried: bool = False, heads: bool = False
    ) -> _MemoryCursor:
        await self._turn()
        end = self._stream.ends()[1]
        if end is None or from_offset > end:
            from_offset = self._stream.last_chunk_offset()
        cursor = _MemoryCursor(self, self._stream, from_offset)
        self._cursors[cursor] = None
        return cursor

    async def end(self) -> int | None:
        await self._turn()
        return self._stream.ends()[1]

    async def first(self) -> int | None:
        await self._turn()
        return self._stream.ends()[0]

    async def store_mark(self, offset: int) -> None:
        await self._turn()
        self._stream.store_mark(self._mark_name, offset)

    async def load_mark(self) -> int | None:
        await self._turn()
        return self._stream.marks.get(self._mark_name)

    async def close(self) -> None:
        self._stream.forget(self)
        self.fail(LogClosed("closed by this node"))

    async def _turn(self) -> None:
        await asyncio.sleep(0)
        if self._error is not None:
            raise self.gone()

    def fail(self, error: SiteLogError) -> None:
        """End this connection, once; everything in flight ends with `error`."""
        if self._error is not None:
            return
        self._error = error
        self._closed.set_result(str(error))
        waiting = [done for _, done in self._written] + [done for _, done in self._queue]
        self._written.clear()
        self._queue.clear()
        for done in waiting:
            self._process.copy().run(done, self.gone())
        self.wake_cursors()

    def gone(self) -> SiteLogError:
        """The error with which the connection ended, to raise."""
        assert self._error is not None
        return type(self._error)(str(self._error))

    @property
    def ended(self) -> bool:
        return self._error is not None

    def wake_cursors(self) -> None:
        for cursor in self._cursors:
            cursor.wake()

    def forget_cursor(self, cursor: _MemoryCursor) -> None:
        self._cursors.pop(cursor, None)


class _MemoryCursor:
    def __init__(self, log: MemoryLog, stream: MemoryStream, offset: int) -> None:
        self._log = log
        self._stream = stream
        self._offset = offset
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False

    async def next(self, ahead: int = 1) -> list[Record]:
        while True:
            # Yield even when there are records, as with a broker: a loop that reads a long log must
            # not keep other tasks from running.
            await asyncio.sleep(0)
            if self._log.ended:
                raise self._log.gone()
            if self._closed:
                raise LogClosed("this reader was closed")
            if records := self._stream.chunk_at(self._offset):
                self._offset = records[-1].offset + 1
                return records
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def stop(self) -> None:
        self._closed = True
        self.wake()

    async def close(self) -> None:
        self.stop()
        self._log.forget_cursor(self)

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
