"""The seam to a site's durable log: append, read, end.

One object is one connection. After any failure it is closed for good: make a new one and read
back what is there (a broken connection says nothing about what it carried). Twins:
`rabbit_log.RabbitLog` (a RabbitMQ stream) and `memory_log.MemoryLog`; one contract suite over both.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol


class Record(NamedTuple):
    """One record and where it stands. Offsets grow, with holes."""

    offset: int
    data: bytes


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


class SiteLog(Protocol):
    """A site's log over one connection of its only writer."""

    @property
    def closed(self) -> asyncio.Future[str]:
        """Done, with the reason, once the connection is gone."""
        ...

    async def append(self, records: Sequence[bytes]) -> None:
        """Append in this order, after all earlier calls; returns when all are confirmed.

        Concurrent calls are written in the order in which they were made. Unconfirmed bytes are
        capped (4 MiB), since a stream's chunk is as big as what was in flight: waits its turn.
        Raises LogClosed with everything in doubt.
        """
        ...

    def read(self, from_offset: int) -> AsyncIterator[list[Record]]:
        """Records at or after `from_offset` (0: from the start), for ever: waits for new ones.

        A start before the log's first record begins at the first. One past the end does NOT
        move silently: it begins at the log's last chunk or earlier (the caller looks for names).
        Memory is bounded whatever the size of a chunk. Raises LogClosed, LogMissing.
        """
        ...

    async def end(self) -> int | None:
        """Offset of the last record that can be read now, None when the log is empty."""
        ...

    async def first(self) -> int | None:
        """Offset of the first record that is kept, None when the log is empty."""
        ...

    async def store_mark(self, offset: int) -> None:
        """Store an offset under the deliverer's name in the broker itself (state-lost mark)."""
        ...

    async def load_mark(self) -> int | None:
        """The stored mark; None only for the broker's exact "no offset", else an error raises."""
        ...

    async def close(self) -> None:
        """Close; idempotent."""
        ...
