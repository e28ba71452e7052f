"""Shared reading of the log by readers that are behind.

A hub has a reader for each of its hundreds of links, and after a cut or a restart all of them are
behind. With a cursor for each, the broker would send the backlog hundreds of times, and its headers
would be parsed hundreds of times: for 20,000 small batches and 300 readers that took 75 s of CPU,
the broker's not counted, and takes 0.7 s this way (`benchmarks/behind.py`).

So a *scan* reads on from a place, and keeps what it has read for all who come through, until the
memory for that is used up. The memory is bounded for all scans of a connection together; stretches
that nobody is behind go first, then the oldest, whoever still wants them:

- a reader joins a scan that keeps what it is to read, or will soon have come to it (and leaves a
  scan that does not); else a scan begins at the reader's place;
- a scan reads ahead of its foremost reader only: nobody waits for the slowest;
- a reader that finds what it wants forgotten looks for a scan again, as a new reader does;
- a scan that comes to what another keeps ends there, and its readers go over.

A reader that leaves harms nobody: the scan's own task reads. The end of the reading (the connection
is lost, the broker refuses) ends it for all readers of the scan.
"""

from __future__ import annotations

import asyncio
import itertools
from functools import partial

from relay.log.scans.scan import Member, Scan, SharedAnswer
from relay.log.scans.scan_cursor import ScanCursor
from relay.log.site_log import LogClosed, Record, SiteLog

KEPT_BYTES = 4 * 1024 * 1024
"""Bytes kept by all scans of a connection. Each scan may have above that what was read at once, and
the stretch of its foremost reader."""
LINGER_S = 30.0
"""Time that a scan without readers keeps its stretches: a hub's links come back singly."""
_AHEAD_BYTES = 1024 * 1024
_NEAR = 10_000
"""Offsets: a reader at most so far ahead of a scan joins the scan, and waits for it to come by."""
_READ_AHEAD = 8
_RECORDS_A_TURN = 256
"""Records parsed in a turn of the loop: some milliseconds in which nothing else can happen."""


class LogScans:
    """The scans of a connection to the log."""

    def __init__(self, log: SiteLog, newest_format: int, kept_bytes: int = KEPT_BYTES) -> None:
        self._log = log
        self._newest_format = newest_format
        self._most_bytes = kept_bytes
        self._scans: list[Scan] = []
        self._ages = itertools.count()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._first = SharedAnswer(log.first)
        self._end = SharedAnswer(log.end)

    @property
    def kept_bytes(self) -> int:
        """Bytes kept by all scans, with an estimate of the objects' own size."""
        return sum(scan.kept_bytes for scan in self._scans)

    @property
    def scan_count(self) -> int:
        return len(self._scans)

    async def first(self) -> int | None:
        """See `SiteLog.first`; asked once for all who ask meanwhile."""
        return await self._first.get()

    async def end(self) -> int | None:
        """See `SiteLog.end`; asked once for all who ask meanwhile."""
        return await self._end.get()

    def cursor(self, from_offset: int) -> ScanCursor:
        """Read records at or after `from_offset`, as `SiteLog.read` does."""
        return ScanCursor(self, self.scan_for(from_offset), from_offset)

    async def close(self) -> None:
        """Wait until all tasks have ended, the log being closed."""
        for scan in self._scans:
            if scan.linger is not None:
                scan.linger.cancel()
            while scan.stretches:
                scan.forget_first()  # a resting reader may hold the scan for long
        self._scans.clear()
        for task in self._tasks:
            task.cancel()
        for waiting in (self._tasks, self._first.tasks, self._end.tasks):
            if waiting:
                await asyncio.wait(set(waiting))

    # Scans, for cursors

    def scan_for(self, offset: int, but: Scan | None = None) -> Scan:
        """See `Scans.scan_for`."""
        near = _NEAR if but is None else _NEAR // 10
        nearest = None
        for scan in self._scans:
            behind = offset - scan.front
            if scan is but:
                continue
            if scan.kept_from <= offset < scan.front:
                return scan
            if not scan.is_open and -near <= behind < 0:
                scan.begin_at(offset)
                return scan
            if 0 <= behind <= near and (nearest is None or scan.front > nearest.front):
                nearest = scan
        if nearest is None:
            nearest = Scan(offset)
            self._scans.append(nearest)
        return nearest

    def elsewhere(self, scan: Scan) -> Scan | None:
        """See `Scans.elsewhere`."""
        is_older = True
        for other in self._scans:
            if other is scan:
                is_older = False
            elif other.kept_from <= scan.front and (
                scan.front < other.front or (is_older and scan.front == other.front)
            ):
                return other
        return None

    def read_on(self, scan: Scan) -> None:
        """See `Scans.read_on`."""
        if scan.task is None:
            task = scan.task = asyncio.create_task(self._read(scan))
            self._tasks[task] = None
            task.add_done_callback(partial(self._ended, scan))

    def joined(self, scan: Scan, member: Member) -> None:
        scan.members[member] = None
        if scan.linger is not None:
            scan.linger.cancel()
            scan.linger = None

    def left(self, scan: Scan, member: Member) -> None:
        scan.members.pop(member, None)
        if scan.members or scan not in self._scans:
            return
        if scan.task is not None:
            scan.task.cancel()
            scan.task = None
        if scan.stretches:
            loop = asyncio.get_running_loop()
            scan.linger = loop.call_later(LINGER_S, self._scans.remove, scan)
        else:
            self._scans.remove(scan)

    def raise_if_closed(self) -> None:
        if self._log.closed.done():
            raise LogClosed(self._log.closed.result())

    # Reading

    async def _read(self, scan: Scan) -> None:
        scan.is_open = True
        cursor = await self._log.read(scan.front)
        in_this_turn = 0
        try:
            while self.elsewhere(scan) is None:
                if not self._may_read(scan):
                    scan.wake()
                    scan.room.clear()
                    await scan.room.wait()
                    continue
                records: list[Record] = []  # hold no records while waiting
                records = await cursor.next(_READ_AHEAD)
                eaten_to = await self._eaten_to(scan.front, records[0].offset)
                for at in range(0, len(records), _RECORDS_A_TURN):
                    end = min(at + _RECORDS_A_TURN, len(records))
                    scan.take_in(records[at:end], self._newest_format, self._ages, eaten_to)
                    eaten_to = None
                    self._forget()
                    in_this_turn += end - at
                    if in_this_turn >= _RECORDS_A_TURN:
                        in_this_turn = 0
                        await asyncio.sleep(0)
        finally:
            await cursor.close()

    async def _eaten_to(self, front: int, next_offset: int) -> int | None:
        """Offset up to which retention may have eaten records between the two offsets, or None.

        A broker silently moves a cursor to what is kept if its start is not kept any more, or if
        retention overtook it while it rested. But chunks of the broker's own leave holes too: only
        the log's first offset tells an eaten range from a hole.
        """
        if next_offset <= front:
            return None
        first = await self.first()
        if first is None:  # even the records in hand are eaten in the log
            return next_offset
        return min(first, next_offset) if first > front else None

    def _may_read(self, scan: Scan) -> bool:
        if scan.is_awaited:
            return True
        return scan.ahead_bytes < _AHEAD_BYTES and self.kept_bytes <= self._most_bytes

    def _forget(self) -> None:
        """Forget stretches that no reader is to come through any more, then the oldest, until the
        bytes kept are allowed; but none that a scan's foremost reader has yet to take.
        """
        while self.kept_bytes > self._most_bytes:
            can = [scan for scan in self._scans if scan.has_forgettable]
            if not can:
                return
            min(can, key=lambda scan: scan.worth).forget_first()

    def _ended(self, scan: Scan, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if scan.task is task:
            scan.task = None
            if error is not None:
                scan.error = error
                if scan in self._scans:  # else dropped by `close`, or as unused
                    self._scans.remove(scan)
            scan.wake()
