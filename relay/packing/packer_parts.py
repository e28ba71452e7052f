"""Collaborators of a packer, and the state that a process carries between incarnations."""

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
    """Part of a site's log that a packer needs; `relay.log.writer.LogWriter` implements it."""

    @property
    def run(self) -> LogRun | None:
        """Present connection, checked; another leaves everything in flight in doubt."""
        ...

    @property
    def checked(self) -> Place | None:
        """Place that stands in the log: appends from now on come later."""
        ...

    async def running(self) -> LogRun:
        """Wait for a connection that has been checked. Raises LogClosed once closed for good."""
        ...

    async def check_now(self) -> None:
        """Read back everything appended until now: readers go back if the log has anything else."""
        ...

    def append_nowait(self, header: BatchHeader, data: bytes) -> asyncio.Future[Appended]:
        """Append; the order of the calls is the order in the log. LogClosed: in doubt."""
        ...

    def give_up(self, reason: str) -> None:
        """End the present connection, which will confirm nothing more."""
        ...

    def read_to_end(self, from_offset: int) -> AsyncIterator[list[LoggedBatch]]:
        """Yield the batches from this offset up to the log's end as of the beginning."""
        ...


class IncarnationEnded(Exception):
    """Reason why this incarnation cannot continue; the next can."""


@dataclass(slots=True)
class PackerMemory:
    """State that a process carries between incarnations; at its start, from the record."""

    record: PackerRecord | None = None
    same_process: bool = False
    """True if `record` is this process's own: then all of its content holds."""
    confirmed: Predecessor | None = None
    """Last batch that the log confirmed to this process; the record may be behind."""
    has_locked: bool = False
    """True once an incarnation of this process has had the lock."""


@dataclass(frozen=True, slots=True)
class PackerParts:
    """Collaborators of a packer. `former_gone` returns True once the broker lists no channel of an
    earlier holder of the lock. Time and chance are handed in.
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
    """True if the process before ended in order."""
    shares_power: bool = True
    """True if the log may have lost its end with what another `boot` may have lost."""
    was_answered: bool = False
    """True if nothing that the process before sent can arrive later."""
