"""What a packer works with, and what a process carries from one incarnation to the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from relay.batches.batch import BatchHeader, LoggedBatch, Place, Predecessor
from relay.batches.incarnation import VoidTable
from relay.links.neighbour_logs import NeighbourLogs
from relay.log.run import Appended, LogRun
from relay.packing.egress import Egress
from relay.packing.packer_record import PackedLedger, PackerRecord


class PackerLog(Protocol):
    """Part of a site's log that a packer needs; `writer.LogWriter` has it."""

    @property
    def run(self) -> LogRun | None:
        """The present connection, checked; after another one, what was in flight is in doubt."""
        ...

    @property
    def checked(self) -> Place | None:
        """A place that stands in the log: what is appended from now on comes later."""
        ...

    async def running(self) -> LogRun:
        """Wait for a connection that has been checked. Raises LogClosed once closed for good."""
        ...

    async def check_now(self) -> None:
        """Read back what was appended until now: readers go back if there is anything else."""
        ...

    def append_nowait(self, header: BatchHeader, data: bytes) -> asyncio.Future[Appended]:
        """Append; the order of the calls is the order in the log. LogClosed: in doubt."""
        ...

    def give_up(self, reason: str) -> None:
        """End the present connection: what it was given will not be confirmed."""
        ...

    def read_to_end(self, from_offset: int) -> AsyncIterator[list[LoggedBatch]]:
        """What stands from that offset on up to what is the end when reading begins."""
        ...


class IncarnationEnded(Exception):
    """This incarnation can go no further, for this reason; the next one can."""


@dataclass(slots=True)
class PackerMemory:
    """What a process carries from one incarnation to the next; at its start, from the record."""

    record: PackerRecord | None = None
    same_process: bool = False
    """Whether `record` is this process's own: then all of it is true."""
    confirmed: Predecessor | None = None
    """The last batch that the log confirmed to this process; the record may be behind."""


@dataclass(frozen=True, slots=True)
class PackerParts:
    """What a packer works with. `former_gone`: does the broker list no channel of an earlier
    holder of the lock any more? Time and chance are handed in.
    """

    connect: Callable[[], Awaitable[Egress]]
    log: PackerLog
    ledger: PackedLedger
    voids: VoidTable
    now_ms: Callable[[], int]
    random_bytes: Callable[[int], bytes]
    former_gone: Callable[[], Awaitable[bool]]
    boot: str
    neighbours: NeighbourLogs = field(default_factory=NeighbourLogs)
    was_clean: bool = False
    """The process before ended in order."""
