"""Interface of a site's durable log: append, read, end.

An object is one connection. After any failure it is closed for good: make a new one and read back
what is there (a broken connection tells nothing about the fate of its appends). Twins:
`rabbit_log.RabbitLog` (a RabbitMQ stream) and `memory_log.MemoryLog`; one contract suite over both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

NOTHING = b""
"""Empty record, whose confirm shows that all before it can be read."""
UNCONFIRMED_S = 10.0
"""Time for a replicated log's leader to have a record confirmed by a majority. A leader that is cut
off from the others claims to lead and confirms nothing: another connection may find the next
leader."""
MAX_UNCONFIRMED_BYTES = 4 * 1024 * 1024
"""Most bytes in flight. A stream's chunk is as big as its writer's bytes in flight, and a reader
gets a chunk whole."""


class Record(NamedTuple):
    """A record and its offset. Offsets grow, with holes."""

    offset: int
    data: bytes
    flaw: str = ""
    """Reason why `data` cannot be a record of ours, or empty."""


class SiteLogError(Exception):
    """Root of a log's errors.

    SiteLogError
    +- LogClosed      the connection is gone; records in flight are in doubt
    +- LogMissing     there is no such log (any more)
    +- LogRefused     the broker refused (rights, arguments)
    """


class LogClosed(SiteLogError):
    """The connection is gone; records appended and not confirmed may or may not be there."""


class LogMissing(SiteLogError):
    """The log was never made, or is deleted."""


class LogRefused(SiteLogError):
    """The broker refused: missing rights or inequivalent arguments."""


class LogCursor(Protocol):
    """Reads on from a place. Memory is bounded: a chunk at a time, unless more are requested."""

    async def next(self, ahead: int = 1) -> list[Record]:
        """The next records, at least one; waits for new ones at the end of the log.

        `ahead`: most chunks under way at once (each is up to 4 MiB; fewer if they are big, or
        others have many). Cancelling loses nothing: the next call returns the same records. Raises
        LogClosed, LogMissing.
        """
        ...

    def stop(self) -> None:
        """End a waiting `next`, and any later one, with LogClosed. `close` must still follow."""
        ...

    async def close(self) -> None:
        """Stop reading; idempotent."""
        ...


class SiteLog(Protocol):
    """A site's log over a connection of its only writer."""

    @property
    def closed(self) -> asyncio.Future[str]:
        """Future of the reason why the connection is gone."""
        ...

    @property
    def max_record_bytes(self) -> int:
        """Most bytes of a record."""
        ...

    @property
    def is_replicated(self) -> bool:
        """True if the log may look empty though it is not: a newly elected leader shows nothing
        before a majority has confirmed something to it.
        """
        ...

    def submit(self, records: Sequence[bytes], done: Callable[[SiteLogError | None], None]) -> None:
        """Append in this order, after all earlier calls.

        `done` is called once, in the order of the calls and never from inside this one: with None
        when all records are confirmed, with the error when their fate is unknown (LogClosed,
        LogMissing) or they were refused (LogRefused). Records wait here once unconfirmed bytes
        reach their cap. Raises LogRefused, with nothing appended, if a record is larger than
        `max_record_bytes`.
        """
        ...

    def fail(self, error: SiteLogError) -> None:
        """End the connection at once; everything in flight ends with `error`. Idempotent."""
        ...

    async def append(self, records: Sequence[bytes]) -> None:
        """Call `submit`, then wait; raises the error that `done` gets. Cancelling does not undo the
        append.
        """
        ...

    async def read(
        self, from_offset: int, *, hurried: bool = False, heads: bool = False
    ) -> LogCursor:
        """Read records at or after `from_offset` (0: from the start). A `hurried` cursor reads as
        far ahead as requested, whatever other cursors have under way: for reads that all else waits
        for. With `heads` a record may end behind its batch's header: for readers of no more.

        A start before the log's first record begins at the first. A start past the end does NOT
        move silently: reading begins at the log's last chunk or earlier (the caller looks for
        names). Raises LogClosed, LogMissing, LogRefused.
        """
        ...

    async def end(self) -> int | None:
        """Offset of the last record that can be read now, or None when the log is empty."""
        ...

    async def first(self) -> int | None:
        """Offset of the first record that is kept, or None when the log is empty."""
        ...

    async def store_mark(self, offset: int) -> None:
        """Store an offset under the deliverer's name in the broker itself (the state-lost mark);
        returns when the broker has the offset.
        """
        ...

    async def load_mark(self) -> int | None:
        """Stored mark, or None only for the broker's exact "no offset": any other answer raises an
        error.
        """
        ...

    async def close(self) -> None:
        """Close; idempotent. Unconfirmed appends end as LogClosed."""
        ...


async def append_by(
    submit: Callable[[Sequence[bytes], Callable[[SiteLogError | None], None]], None],
    records: Sequence[bytes],
) -> None:
    """Append records by a log's `submit`, and wait for the answer. Raises SiteLogError."""
    outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(error: SiteLogError | None) -> None:
        if outcome.done():
            return  # the caller was cancelled
        if error is None:
            outcome.set_result(None)
        else:
            outcome.set_exception(error)

    submit(records, done)
    await outcome
