"""Shared readings of logs in memory, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import AsyncMock, patch

from relay.log.memory_log import MemoryLog, MemoryStream
from relay.log.scans.scan_cursor import ScanCursor
from relay.log.scans.shared_scan import LogScans
from tests.log_batches import batch, sequences

FORMAT = 1
SMALL = len(batch(0)[1])


@contextmanager
def watched_reads() -> Iterator[AsyncMock]:
    """Every cursor that is opened on a log in memory."""
    with patch.object(MemoryLog, "read", autospec=True, side_effect=MemoryLog.read) as read:
        yield read


def stream_of(count: int, *, chunk: int = 10, body: bytes = b"body") -> MemoryStream:
    """A log of so many batches, of which each is at the offset of its number."""
    stream = MemoryStream()
    for first in range(0, count, chunk):
        numbers = range(first, min(first + chunk, count))
        stream.append_alien(*(batch(number, body=body)[1] for number in numbers))
    return stream


async def scans_of(stream: MemoryStream, kept_bytes: int = 1 << 20) -> LogScans:
    return LogScans(await stream.open(), FORMAT, kept_bytes)


async def take_from(cursor: ScanCursor, count: int, max_bytes: int = 10 * SMALL) -> list[int]:
    """The sequences of the next batches, at least so many."""
    got: list[int] = []
    while len(got) < count:
        await cursor.more()
        got += sequences(cursor.take(max_bytes))
    return got
