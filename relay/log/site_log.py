"""The seam to a site's durable log: append, read, end.

One object is one connection. After any failure it is closed for good: make a new one and read
back what is there (a broken connection says nothing about what it carried). Twins:
`rabbit_log.RabbitLog` (a RabbitMQ stream) and `memory_log.MemoryLog`; one contract suite over both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

NOTHING = b""
"""A record that says nothing, and whose confirm tells that all before it can be read."""
UNCONFIRMED_S = 10.0
"""Time for a replicated log's leader to have a record confirmed by a majority. A leader that is cut
off from the others says that it leads, and confirms nothing: another connection may find the next
leader."""
MAX_UNCONFIRMED_BYTES = 4 * 1024 * 1024
"""A stream's chunk is as big as what its writer had in flight, and a reader gets it whole."""


class Record(NamedTuple):
    """One record and where it stands. Offsets grow, with holes."""

    offset: int
    data: bytes
    flaw: str = ""
    """Why this cannot be a record of ours (`data` is then what stands there); empty: it can."""


class SiteLogError(Exception):
    """Root of what a log raises.

    SiteLogError
    +- LogClosed      the connection is gone; what was in flight is in doubt
    +- LogMissing     there is no such log (any more)
    +- LogRefused     the broker said no (rights, arguments)
    """


class LogClosed(SiteLogError):
    """The connection is gone; what was appended and not confirmed may or may not be there."""


class LogMissing(SiteLogError):
    """There is no such log: never made, or deleted."""


class LogRefused(SiteLogError):
    """The broker refused: missing rights or inequivalent arguments."""


class LogCursor(Protocol):
    """Reads on from one place. Memory is bounded: a chunk at a time, unless asked for more."""

    async def next(self, ahead: int = 1) -> list[Record]:
        """What comes next, at least one record; waits for new ones at the end of the log.

        `ahead`: how many chunks may be under way at once (each is up to 4 MiB; fewer are if they
        are big, or others have many). Cancelling loses nothing: the next call returns what this
        one would have.
        Raises LogClosed, LogMissing.
        """
        ...

    def stop(self) -> None:
        """End a waiting `next`, and any later one, with LogClosed. `close` is still to come."""
        ...

    async def close(self) -> None:
        """Stop reading; idempotent."""
        ...


class SiteLog(Protocol):
    """A site's log over one connection of its only writer."""

    @property
    def closed(self) -> asyncio.Future[str]:
        """Done, with the reason, once the connection is gone."""
        ...

    @property
    def max_record_bytes(self) -> int:
        """The largest record that can be appended."""
        ...

    @property
    def is_replicated(self) -> bool:
        """True if the log may look empty though it is not: a leader that was just elected shows
        nothing before a majority has confirmed something to it.
        """
        ...

    def submit(self, records: Sequence[bytes], done: Callable[[SiteLogError | None], None]) -> None:
        """Append in this order, after all earlier calls.

        `done` is called once, in the order of the calls and never from inside this one: with None
        when all records are confirmed, with the error when that is not known (LogClosed,
        LogMissing) or not so (LogRefused). Unconfirmed bytes are capped: what is above waits here.
        Raises LogRefused, with nothing appended, if a record is larger than `max_record_bytes`.
        """
        ...

    def fail(self, error: SiteLogError) -> None:
        """End the connection at once; everything in flight ends with `error`. Idempotent."""
        ...

    async def append(self, records: Sequence[bytes]) -> None:
        """`submit`, then wait; raises what `done` gets. Cancelling does not undo it."""
        ...

    async def read(self, from_offset: int, *, hurried: bool = False) -> LogCursor:
        """Read records at or after `from_offset` (0: from the start). A `hurried` cursor reads as
        far ahead as asked for, whatever other cursors have under way: for what all else waits for.

        A start before the log's first record begins at the first. One past the end does NOT
        move silently: it begins at the log's last chunk or earlier (the caller looks for names).
        Raises LogClosed, LogMissing, LogRefused.
        """
        ...

    async def end(self) -> int | None:
        """Offset of the last record that can be read now, None when the log is empty."""
        ...

    async def first(self) -> int | None:
        """Offset of the first record that is kept, None when the log is empty."""
        ...

    async def store_mark(self, offset: int) -> None:
        """Store an offset under the deliverer's name in the broker itself (state-lost mark);
        returns when the broker has it.
        """
        ...

    async def load_mark(self) -> int | None:
        """The stored mark; None only for the broker's exact "no offset", else an error raises."""
        ...

    async def close(self) -> None:
        """Close; idempotent. What is unconfirmed ends as LogClosed."""
        ...
