"""A reader's way through the log, over scans that it shares with others."""

from __future__ import annotations

import asyncio
from typing import Protocol

from relay.batches.batch import BatchName, LoggedBatch
from relay.log.scans.scan import Member, Scan, again
from relay.log.scans.stretch import Stretch
from relay.log.site_log import LogClosed

_PATIENCE_BYTES = 4 * 1024 * 1024
"""Bytes that a reader lets a scan read while the scan does not come by."""


class Scans(Protocol):
    """Interface of all scans for a cursor: `LogScans` implements it."""

    def scan_for(self, offset: int, but: Scan | None = None) -> Scan:
        """The scan by which to read on from `offset`; not `but`, which does not come by."""
        ...

    def elsewhere(self, scan: Scan) -> Scan | None:
        """Another scan that keeps what follows this scan's front, or an older scan that has come as
        far.
        """
        ...

    def read_on(self, scan: Scan) -> None:
        """Ensure that a task reads for this scan."""
        ...

    def joined(self, scan: Scan, member: Member) -> None: ...

    def left(self, scan: Scan, member: Member) -> None: ...

    def raise_if_closed(self) -> None: ...


class ScanCursor:
    """A reader's way through the log, over whatever scan. Made by `LogScans.cursor`.

    Wait for `more`, then `take` batches, or `skip_past` a name; both end where something was
    `eaten_to`, until `pass_eaten`.
    """

    def __init__(self, scans: Scans, scan: Scan, offset: int) -> None:
        self.offset = offset
        """Begin of what comes next."""
        self._scans = scans
        self._scan = scan
        self._at: tuple[int, int] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._left = False
        self._patience = scan.read_bytes + _PATIENCE_BYTES
        scans.joined(scan, self)

    @property
    def has_more(self) -> bool:
        """True if `more` would return at once, unless what was kept is forgotten."""
        return self.offset < self._scan.shown or self.stands

    @property
    def stands(self) -> bool:
        """True if only another version of this program can read what comes next."""
        if self._at is None:
            return False
        number, index = self._at
        stretch = self._scan.stretches.get(number)
        return stretch is not None and stretch.unknown and index == len(stretch.batches)

    @property
    def eaten_to(self) -> int | None:
        """Offset before which retention may have eaten what comes next, or None."""
        if self._at is None:
            return None
        stretch = self._scan.stretches.get(self._at[0])
        return stretch.eaten_to if stretch is not None and self._is_eaten(stretch) else None

    def pass_eaten(self) -> None:
        """Go on behind what retention has eaten."""
        if (eaten_to := self.eaten_to) is not None:
            self.offset = eaten_to

    async def more(self) -> None:
        """Wait until there is something to take, be it records that are no batches.

        Cancelling loses nothing. Raises the errors of a log's cursor; LogClosed after `leave`.
        """
        while not self._is_there():
            self._scans.read_on(self._scan)
            self._scan.wait_for(self.offset)
            waiter = self._waiter = asyncio.get_running_loop().create_future()
            self._scan.waiters.add(waiter)
            try:
                await waiter
            finally:
                self._scan.waiters.discard(waiter)
                self._waiter = None

    def take(self, max_bytes: int) -> list[LoggedBatch]:
        """Take the next batches that are here: up to about `max_bytes`, at least one if there is
        any; none behind an unreadable one.
        """
        taken: list[LoggedBatch] = []
        if self._at is None:
            return taken
        scan, (number, index) = self._scan, self._at
        while (stretch := scan.stretches.get(number)) is not None:
            if self._is_eaten(stretch):
                break
            batches = stretch.batches
            upto = stretch.fitting(index, max_bytes)
            if upto == index < len(batches) and not taken:
                upto += 1
            taken += batches[index:upto]
            max_bytes -= stretch.bytes_between(index, upto)
            self._at, self.offset = (number, upto), stretch.offset_at(upto)
            if upto < len(batches) or max_bytes <= 0:
                break
            if stretch.unknown or number + 1 == scan.end:
                break
            number, index = self._at = number + 1, 0
        scan.reached(*self._at)
        return taken

    def skip_past(self, name: BatchName) -> tuple[bool, int]:
        """Skip what is here, up to the batch of this name, inclusive; return True if the batch was
        found, and the number of batches skipped before it.
        """
        skipped, found = 0, None
        if self._at is None:
            return False, skipped
        scan, (number, index) = self._scan, self._at
        while (stretch := scan.stretches.get(number)) is not None:
            if self._is_eaten(stretch):
                break
            found = stretch.find(name, index)
            upto = len(stretch.batches) if found is None else found + 1
            skipped += upto - index
            self._at, self.offset = (number, upto), stretch.offset_at(upto)
            if found is not None:
                break
            if stretch.unknown or number + 1 == scan.end:
                break
            number, index = self._at = number + 1, 0
        scan.reached(*self._at)
        return (True, skipped - 1) if found is not None else (False, skipped)

    def leave(self) -> None:
        """End a waiting `more`, and any later one; idempotent."""
        if not self._left:
            self._left = True
            self._scans.left(self._scan, self)
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)

    def _is_eaten(self, stretch: Stretch) -> bool:
        return self.offset < stretch.eaten_to

    def _is_there(self) -> bool:
        if self._left:
            raise LogClosed("this reader was closed")
        scan = self._scan
        if scan.error is not None:
            raise again(scan.error)
        self._scans.raise_if_closed()
        forgotten = self.offset < scan.kept_from if self._at is None else self._at[0] < scan.first
        if forgotten:
            scan = self._move_to(self._scans.scan_for(self.offset))
        elif self.offset >= scan.front and (other := self._scans.elsewhere(scan)) is not None:
            scan = self._move_to(other)
        elif self.offset > scan.front and scan.read_bytes > self._patience:
            scan = self._move_to(self._scans.scan_for(self.offset, but=scan))
        if self._at is None and self.offset < scan.front:
            self._at = scan.locate(self.offset)
        return self.has_more

    def _move_to(self, scan: Scan) -> Scan:
        self._at = None
        self._patience = scan.read_bytes + _PATIENCE_BYTES
        if scan is not self._scan:
            self._scans.left(self._scan, self)
            self._scans.joined(scan, self)
            self._scan = scan
        return scan
