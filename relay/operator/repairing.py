"""A site repeats messages that others lack: out of its log, and into it as repair batches.

Repair batches travel like all batches. Nothing of a repair is kept: if somebody repeats the
request, after a crash for example, the messages are sent again, and the barriers suppress known
ones.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from federation.partitions import moved_to_lane
from relay.batches.batch import MAX_ENTRIES, BatchHeader, BatchName, Entry, LoggedBatch
from relay.batches.format import BadBatch, decode_entries, total_bytes
from relay.batches.fragments import FRAGMENT_ABOVE, FragmentAssembly, FragmentMismatch, message_of
from relay.batches.mesh_headers import as_repaired
from relay.bulk_amqp.errors import MalformedProperties
from relay.log.site_log import LogClosed, SiteLogError
from relay.operator.repair_wanted import Wanted, by_place
from relay.packing.requested_parcels import NotPacking, RepairParcel
from relay.waiters import set_within

BATCH_BYTES = 256 * 1024
HELD_BYTES = 4 * 1024 * 1024
"""Limit of found messages that wait for more of their kind."""
PROGRESS_EVERY_S = 2.0
ATTEMPTS = 5
"""Times that the log is read again from its start because its connection ended."""


class RepairFailed(Exception):
    """Raised where messages could not be looked for, or sent; the text has the reason. A request
    may be repeated.
    """


@dataclass(frozen=True, slots=True)
class RepairRequest:
    """Messages to repair. `by` names the asker, for people."""

    wanted: Sequence[Wanted]
    by: str = "another repair"
    take_pieces: frozenset[str] = frozenset()
    """Cluster IDs of destinations that are known to join the pieces of big messages."""


class RepairProgress(NamedTuple):
    """Progress of one request."""

    looked_at: int
    """Number of batches of the log that were looked at."""
    batch: BatchName | None = None
    """Repair batch that the log has just confirmed."""
    sent: tuple[Wanted, ...] = ()
    """Messages in the batch."""


class Waits(NamedTuple):
    """Another request is being worked on."""

    by: str
    """Asker of that other request."""
    messages: int
    """Number of messages in that request."""
    for_s: float
    """Seconds since that request began."""


class NotSent(NamedTuple):
    """Message found, but not sent to `wanted.destinations`; `why` has the remedy. Other
    destinations of the same message may be sent it.
    """

    wanted: Wanted
    why: str


class ReadableLog(Protocol):
    """Site's log as a repair reads it; `LogWriter` implements it."""

    def read_to_end(self, from_offset: int) -> AsyncIterator[list[LoggedBatch]]: ...


Step = RepairProgress | Waits | NotSent | list[Wanted]

PIECES = (
    "it is too big for one batch, and {sites} may run a version that would deliver it in pieces:"
    " upgrade all nodes, then say `batch_format: 2` in the mesh file, and repair again"
)


class Repairing:
    """Repairs of one site. `repair` puts a parcel into the log (`PackerLoop.repair`).
    `is_new_format` returns True if every node of the mesh reads batches that the first release did
    not. `lane` returns the lane of repair batches, or None for the lane of the repaired messages.
    """

    def __init__(
        self,
        log: ReadableLog,
        is_void: Callable[[BatchHeader], bool],
        repair: Callable[[RepairParcel], None],
        is_new_format: Callable[[], bool] = lambda: True,
        lane: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._log = log
        self._is_void = is_void
        self._repair = repair
        self._is_new_format = is_new_format
        self._lane = lane
        self._present: _Present | None = None
        self._free = asyncio.Event()

    async def look(self, request: RepairRequest) -> AsyncGenerator[Step, None]:
        """Look without sending: yield progress now and then, in the end the messages that the log
        lacks.
        """
        search = Search(request.wanted)
        async for waits in self._until_free():
            yield waits
        with self._working_on(request):
            async for step in self._search(search):
                if isinstance(step, RepairProgress):
                    yield step
                elif refused := self._allowed(step, request)[1]:
                    yield refused
        yield search.missing

    async def send(self, request: RepairRequest, rate: float) -> AsyncGenerator[Step, None]:
        """Send at most `rate` messages a second: yield progress, in the end the messages that the
        log does not have (any more). Raises RepairFailed.
        """
        search = Search(request.wanted)
        pace = _Pace(rate)
        async for waits in self._until_free():
            yield waits
        with self._working_on(request):
            open_parcels = _Parcels(self._lane())
            looked_at = 0
            async for step in self._search(search):
                if isinstance(step, RepairProgress):
                    looked_at = step.looked_at
                    yield step
                    continue
                found, refused = self._allowed(step, request)
                if refused is not None:
                    yield refused
                if found is None:
                    continue
                for parcel, sent in open_parcels.add(found):
                    async for progress in self._append(parcel, sent, pace, looked_at):
                        yield progress
            for parcel, sent in open_parcels.take_all():
                async for progress in self._append(parcel, sent, pace, looked_at):
                    yield progress
        yield search.missing

    async def _until_free(self) -> AsyncIterator[Waits]:
        """Wait for other requests, yielding which is before. Nothing is awaited between the end of
        this wait and `_working_on`.
        """
        while self._present is not None:
            request, began = self._present
            yield Waits(request.by, len(request.wanted), _now() - began)
            await set_within(PROGRESS_EVERY_S, self._free)

    @contextlib.contextmanager
    def _working_on(self, request: RepairRequest) -> Iterator[None]:
        self._present = _Present(request, _now())
        self._free.clear()
        try:
            yield
        finally:
            self._present = None
            self._free.set()

    def _allowed(self, found: Found, request: RepairRequest) -> tuple[Found | None, NotSent | None]:
        """Split a found message by destination into what may be sent and what may not: a node of
        the first release takes each piece of a big repaired message for a message.
        """
        if total_bytes([found.entry]) <= FRAGMENT_ABOVE or self._is_new_format():
            return found, None
        wanted = found.wanted
        takes = tuple(site for site in wanted.destinations if site in request.take_pieces)
        others = tuple(site for site in wanted.destinations if site not in request.take_pieces)
        if not others:
            return found, None
        why = PIECES.format(sites=", ".join(others))
        refused = NotSent(wanted._replace(destinations=others), why)
        if not takes:
            return None, refused
        return found._replace(wanted=wanted._replace(destinations=takes)), refused

    async def _search(self, search: Search) -> AsyncIterator[RepairProgress | Found]:
        attempts = looked_at = 0
        reported_at = _now()
        while not search.is_over:
            search.begin_again()
            try:
                async for batches in self._log.read_to_end(0):
                    for batch in batches:
                        looked_at += 1
                        if not self._is_void(batch.header):
                            for found in search.take(batch):
                                yield found
                    if search.is_over:
                        break
                    if _now() - reported_at >= PROGRESS_EVERY_S:
                        reported_at = _now()
                        yield RepairProgress(looked_at)
                    await asyncio.sleep(0)
                return
            except LogClosed as error:
                attempts += 1
                if attempts >= ATTEMPTS:
                    raise RepairFailed(f"the site's log cannot be read: {error}") from error
            except SiteLogError as error:
                raise RepairFailed(f"the site's log cannot be read: {error}") from error

    async def _append(
        self, parcel: RepairParcel, sent: Sequence[Wanted], pace: _Pace, looked_at: int
    ) -> AsyncIterator[RepairProgress]:
        """Append a parcel at the pace of the request, yielding progress while waiting: the asker
        takes a long silence for the node's end.
        """
        while (left_s := pace.left_s) > 0:
            await asyncio.sleep(min(left_s, PROGRESS_EVERY_S))
            if pace.left_s > 0:
                yield RepairProgress(looked_at)
        pace.spend(len(sent))
        try:
            self._repair(parcel)
            while not (await asyncio.wait({parcel.logged}, timeout=PROGRESS_EVERY_S))[0]:
                yield RepairProgress(looked_at)
            name = parcel.logged.result()
        except NotPacking as error:
            raise RepairFailed(f"nothing can be put into the site's log: {error}") from error
        yield RepairProgress(looked_at, name, tuple(sent))


class _Present(NamedTuple):
    request: RepairRequest
    began: float


class _Pace:
    """Limit of messages a second."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._due = _now()

    @property
    def left_s(self) -> float:
        """Seconds until the next message may go."""
        return self._due - _now()

    def spend(self, count: int) -> None:
        self._due = max(self._due, _now()) + count / self._rate


class _Parcels:
    """Found messages by origin, flow and destinations, put together to batches."""

    def __init__(self, lane: int | None) -> None:
        self._lane = lane
        self._open: dict[tuple[str, str, int, tuple[str, ...]], list[Found]] = {}
        self._bytes = 0

    def add(self, found: Found) -> list[tuple[RepairParcel, list[Wanted]]]:
        """Add a message; return the parcels that are full now."""
        series = found.wanted.batch.series
        # The partition stays: the site's slot that judges a message follows from it.
        lane = moved_to_lane(series.lane, self._lane)
        key = (series.origin, series.exchange, lane, found.wanted.destinations)
        size = total_bytes([found.entry])
        full = []
        waiting = self._open.get(key, [])
        if waiting and total_bytes([one.entry for one in waiting]) + size > BATCH_BYTES:
            full.append(self._take(key))
        waiting = self._open.setdefault(key, [])
        waiting.append(found)
        self._bytes += size
        if len(waiting) >= MAX_ENTRIES or size > BATCH_BYTES:
            full.append(self._take(key))
        if self._bytes > HELD_BYTES:
            full += self.take_all()
        return full

    def take_all(self) -> list[tuple[RepairParcel, list[Wanted]]]:
        return [self._take(key) for key in list(self._open)]

    def _take(
        self, key: tuple[str, str, int, tuple[str, ...]]
    ) -> tuple[RepairParcel, list[Wanted]]:
        found = self._open.pop(key)
        entries = [one.entry for one in found]
        self._bytes -= total_bytes(entries)
        _, exchange, lane, destinations = key
        return RepairParcel(exchange, lane, destinations, entries), [one.wanted for one in found]


def _now() -> float:
    """Time of the clock by which sleeps are measured."""
    return asyncio.get_running_loop().time()


class Found(NamedTuple):
    """A wanted message of the log; `entry` is in the form for a repair batch."""

    wanted: Wanted
    header: BatchHeader
    entry: Entry


class Search:
    """Search for messages in a log's batches; a found message is not looked for again. Pure."""

    def __init__(self, wanted: Iterable[Wanted]) -> None:
        self._wanted = by_place(wanted)
        self._pieces = FragmentAssembly()

    @property
    def is_over(self) -> bool:
        """True once everything was found."""
        return not self._wanted

    @property
    def missing(self) -> list[Wanted]:
        """Messages not found yet."""
        return [one for entries in self._wanted.values() for one in entries.values()]

    def begin_again(self) -> None:
        """Prepare to read the log from its start again."""
        self._pieces = FragmentAssembly()

    def take(self, batch: LoggedBatch) -> Iterator[Found]:
        """Take the next batch of the log, not a void one; yield its wanted messages."""
        header = batch.header
        try:
            name = _name_of(header)
            if name not in self._wanted:
                return
            entries = decode_entries(batch.data)
            if header.fragment is not None:
                whole = self._pieces.add(header, entries[0]) if len(entries) == 1 else None
                if whole is None:
                    return
                entries = [whole]
        except (BadBatch, FragmentMismatch):
            return  # a batch damaged here may be whole in another site's log
        yield from self._take_from(name, header, entries)

    def _take_from(
        self, name: BatchName, header: BatchHeader, entries: list[Entry]
    ) -> Iterator[Found]:
        wanted = self._wanted[name]
        for number, one in sorted(wanted.items()):
            if number >= len(entries) or entries[number].identity != one.identity:
                continue
            try:
                entry = as_repaired(entries[number], name.series.origin)
            except MalformedProperties:
                continue
            del wanted[number]
            yield Found(one, header, entry)
        if not wanted:
            del self._wanted[name]


def _name_of(header: BatchHeader) -> BatchName:
    return header.name if header.fragment is None else message_of(header)[0]
