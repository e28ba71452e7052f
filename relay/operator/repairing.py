"""A site sends messages again that others lack: out of its log, and into it as repair batches.

From there they go the way of all batches. Nothing of a repair is kept: whoever asks again, after a
crash, say, has the same messages sent again, and the barriers there suppress what they have.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from relay.batches.batch import MAX_ENTRIES, BatchHeader, BatchName, LoggedBatch
from relay.batches.format import total_bytes
from relay.batches.fragments import FRAGMENT_ABOVE
from relay.log.site_log import LogClosed, SiteLogError
from relay.operator.repair_search import Found, Search
from relay.operator.repair_wanted import Wanted
from relay.packing.requested_parcels import NotPacking, RepairParcel
from relay.waiters import set_within

BATCH_BYTES = 256 * 1024
HELD_BYTES = 4 * 1024 * 1024
"""Of messages that wait for more of their kind."""
TOLD_EVERY_S = 2.0
ATTEMPTS = 5
"""So often the log is read again from its start because its connection ended."""


class RepairFailed(Exception):
    """Not all could be looked for, or sent; the text says why. Asking again does no harm."""


@dataclass(frozen=True, slots=True)
class Request:
    """`by`: whose it is, for people."""

    wanted: Sequence[Wanted]
    by: str = "another repair"
    take_pieces: frozenset[str] = frozenset()
    """Cluster IDs of destinations that are known to put big messages together."""


class Progress(NamedTuple):
    """Of one request, so far."""

    looked_at: int
    """Batches of the log."""
    batch: BatchName | None = None
    """The repair batch that the log has confirmed just now."""
    sent: tuple[Wanted, ...] = ()
    """What is in it."""


class Waits(NamedTuple):
    """Another request is being worked on."""

    by: str
    """Whose."""
    messages: int
    """It asks for so many."""
    for_s: float
    """Since it began."""


class Refused(NamedTuple):
    """Not sent to `wanted.destinations`, and not missing; `why` says what to do. Other destinations
    of the same message may be sent it.
    """

    wanted: Wanted
    why: str


class ReadableLog(Protocol):
    """What this needs of the site's log: `LogWriter` is it."""

    def read_to_end(self, from_offset: int) -> AsyncIterator[list[LoggedBatch]]: ...


Step = Progress | Waits | Refused | list[Wanted]

PIECES = (
    "it is too big for one batch, and {sites} may run a version that would deliver it in pieces:"
    " upgrade all nodes, then say `batch_format: 2` in the mesh file, and repair again"
)


class Repairing:
    """One site's. `repair` puts a parcel into the log (`PackerLoop.repair`). `is_new_format`: every
    node of the mesh reads batches that the first release did not. `lane`: the lane that repairs go
    in; None: that of what is repaired.
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

    async def look(self, request: Request) -> AsyncGenerator[Step, None]:
        """Only look, and send nothing: progress now and then, in the end what the log lacks."""
        search = Search(request.wanted)
        async for waits in self._until_free():
            yield waits
        with self._working_on(request):
            async for step in self._search(search):
                if isinstance(step, Progress):
                    yield step
                elif refused := self._allowed(step, request)[1]:
                    yield refused
        yield search.missing

    async def send(self, request: Request, rate: float) -> AsyncGenerator[Step, None]:
        """Send these, at most `rate` messages a second: progress as it comes, in the end what the
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
                if isinstance(step, Progress):
                    looked_at = step.looked_at
                    yield step
                    continue
                found, refused = self._allowed(step, request)
                if refused is not None:
                    yield refused
                if found is None:
                    continue
                for parcel, sent in open_parcels.add(found):
                    async for told in self._append(parcel, sent, pace, looked_at):
                        yield told
            for parcel, sent in open_parcels.take_all():
                async for told in self._append(parcel, sent, pace, looked_at):
                    yield told
        yield search.missing

    async def _until_free(self) -> AsyncIterator[Waits]:
        """One request at a time; who waits hears whose is before. Nothing is awaited between its
        end and `_working_on`.
        """
        while self._present is not None:
            request, began = self._present
            yield Waits(request.by, len(request.wanted), _now() - began)
            await set_within(TOLD_EVERY_S, self._free)

    @contextlib.contextmanager
    def _working_on(self, request: Request) -> Iterator[None]:
        self._present = _Present(request, _now())
        self._free.clear()
        try:
            yield
        finally:
            self._present = None
            self._free.set()

    def _allowed(self, found: Found, request: Request) -> tuple[Found | None, Refused | None]:
        """To whom this may be sent, and to whom not: a node of the first release takes each piece
        of a big repaired message for a message.
        """
        if total_bytes([found.entry]) <= FRAGMENT_ABOVE or self._is_new_format():
            return found, None
        wanted = found.wanted
        takes = tuple(site for site in wanted.destinations if site in request.take_pieces)
        others = tuple(site for site in wanted.destinations if site not in request.take_pieces)
        if not others:
            return found, None
        why = PIECES.format(sites=", ".join(others))
        refused = Refused(wanted._replace(destinations=others), why)
        if not takes:
            return None, refused
        return found._replace(wanted=wanted._replace(destinations=takes)), refused

    async def _search(self, search: Search) -> AsyncIterator[Progress | Found]:
        attempts = looked_at = 0
        told_at = _now()
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
                    if _now() - told_at >= TOLD_EVERY_S:
                        told_at = _now()
                        yield Progress(looked_at)
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
    ) -> AsyncIterator[Progress]:
        """Whoever asked hears of it while it waits: he takes a long silence for a node's end."""
        while (left_s := pace.left_s) > 0:
            await asyncio.sleep(min(left_s, TOLD_EVERY_S))
            if pace.left_s > 0:
                yield Progress(looked_at)
        pace.spend(len(sent))
        try:
            self._repair(parcel)
            while not (await asyncio.wait({parcel.logged}, timeout=TOLD_EVERY_S))[0]:
                yield Progress(looked_at)
            name = parcel.logged.result()
        except NotPacking as error:
            raise RepairFailed(f"nothing can be put into the site's log: {error}") from error
        yield Progress(looked_at, name, tuple(sent))


class _Present(NamedTuple):
    request: Request
    began: float


class _Pace:
    """So many a second."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._due = _now()

    @property
    def left_s(self) -> float:
        """Until the next may go."""
        return self._due - _now()

    def spend(self, count: int) -> None:
        self._due = max(self._due, _now()) + count / self._rate


class _Parcels:
    """What was found, put together: whose it is, flow and destinations make a batch."""

    def __init__(self, lane: int | None) -> None:
        self._lane = lane
        self._open: dict[tuple[str, str, int, tuple[str, ...]], list[Found]] = {}
        self._bytes = 0

    def add(self, found: Found) -> list[tuple[RepairParcel, list[Wanted]]]:
        """Those that are full with this."""
        series = found.wanted.batch.series
        lane = series.lane if self._lane is None else self._lane
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
    """The clock that sleeps are measured by."""
    return asyncio.get_running_loop().time()
