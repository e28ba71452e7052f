"""The node's one writer of its site's log, and the source of all readers.

Over a factory of connections the writer keeps a log going:

- **connect** again and again, with backoff;
- **check** at every new connection, before anything else (`check`): are the names logged last
  still there? Missing ones leave the logged set, and the log gets a new ID, so that neighbours send
  them again;
- **run**: append batches in the order in which they come; take confirmed ones into the logged set
  and the hot tail; read back in bulk, once a second or after some dozen batches, what was appended,
  and send all readers back if anything else turns up; keep a snapshot.

A `LogRun` is what a receiver's welcome names: new at each connection, gone with it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from typing import NamedTuple

from relay.batches.batch import BatchHeader, LoggedBatch, Place
from relay.batches.known_formats import KNOWN, Formats
from relay.batches.name_set import NameSet
from relay.log.check import check_log
from relay.log.flights import Flights
from relay.log.follower import LogFollower
from relay.log.hot_tail import HotTail
from relay.log.knowledge import LogCounts, LogKnowledge, LogLag, UnknownRecord, decode_record
from relay.log.reader import LogReader
from relay.log.recent_names import Seen
from relay.log.run import Appended, LogEvents, LogRun, LogSettings, LogState
from relay.log.scans.shared_scan import LogScans
from relay.log.site_log import LogClosed, SiteLog, SiteLogError
from relay.log.snapshot import LogMemory
from relay.retry import Backoff
from relay.waiters import Waiters, set_within

logger = logging.getLogger(__name__)

_RUN_BYTES = 8
_STALE_A_SERIES_S = 0.0005
"""Age at which encoded names are stale, for each series: a hundred times the cost of encoding."""


_READ_BACK_AHEAD = 32
"""Chunks under way while a log is read back: a quiet log has some dozens a second, and a round trip
to a busy broker for each few of them would take longer than all the rest."""


class _EncodedNames(NamedTuple):
    """Encoded names of a run; `good_until` is the event loop's time."""

    run: LogRun | None
    good_until: float
    data: bytes


class LogWriter:
    """Writer of the site's log; see the module. `run_forever` does the work; all other methods may
    be called beside it.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[SiteLog]],
        memory: LogMemory,
        events: LogEvents,
        *,
        origin: str,
        settings: LogSettings | None = None,
        formats: Formats = KNOWN,
        random_bytes: Callable[[int], bytes] = os.urandom,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._connect = connect
        self._events = events
        self._settings = settings or LogSettings()
        self._random_bytes = random_bytes
        self._backoff = Backoff(
            self._settings.backoff_first_s, self._settings.backoff_most_s, jitter
        )
        self._memory = memory
        self._knowledge = LogKnowledge(
            memory,
            origin=origin,
            random_bytes=random_bytes,
            on_bad_record=events.on_bad_record,
            on_superseded=events.on_superseded,
            newest_format=formats.newest_batch,
        )
        self._tail = HotTail(self._settings.hot_bytes)
        self._state = LogState.CONNECTING
        self._state_reason = ""
        self._log: SiteLog | None = None
        self._scans: LogScans | None = None
        self._run: LogRun | None = None
        self._run_waiters = Waiters()
        self._check_waiters = Waiters()
        self._readers: dict[LogReader, None] = {}
        self._connection: asyncio.Task[None] | None = None
        self._failed_attempts = 0
        self._encoded_names: _EncodedNames | None = None
        self._hurry = asyncio.Event()
        self._flights = Flights(
            self._knowledge, self._tail, self._settings, self._hurry, events.trace
        )
        self._follower = LogFollower(
            self._knowledge,
            self._tail,
            self._readers,
            self._settings,
            self._flights.data_of,
            self._hurry,
            self._check_waiters,
        )
        self._closing = False

    # For the node

    @property
    def state(self) -> tuple[LogState, str]:
        """State, and its reason."""
        return self._state, self._state_reason

    @property
    def counts(self) -> LogCounts:
        """Counts since the start."""
        return self._knowledge.counts

    @property
    def logged(self) -> NameSet:
        """Names in the log. Not to be changed; another object after a log made anew."""
        return self._knowledge.logged

    def encoded_names(self) -> bytes:
        """Encode `logged` for a welcome, which names what need not be sent. The bytes are of this
        run, but may lack batches of the last moment: half a millisecond for each series. When a hub
        starts, hundreds of links ask at once: encoding for each would take so long that they all
        asked again.
        """
        run, now = self._run, asyncio.get_running_loop().time()
        cached = self._encoded_names
        if cached is None or cached.run is not run or now >= cached.good_until:
            data = self.logged.encode()
            cached = _EncodedNames(run, now + _STALE_A_SERIES_S * len(self.logged.series()), data)
            self._encoded_names = cached
        return cached.data

    @property
    def tail(self) -> HotTail:
        """Batches appended last."""
        return self._tail

    @property
    def run(self) -> LogRun | None:
        """The present run, or None while there is no checked connection."""
        return self._run

    @property
    def checked(self) -> Place | None:
        """Last place that was read back and is in a saved snapshot; no stored position may pass
        it.
        """
        return self._knowledge.checked

    async def running(self) -> LogRun:
        """Wait for the present run. Raises LogClosed when closed for good."""
        while self._run is None:
            if self._closing:
                raise LogClosed("the log was closed")
            await self._run_waiters.wait()
        return self._run

    def reader(self, start: Place | None, *, name: str, reached: Place | None = None) -> LogReader:
        """Make a reader of what follows `start` (None: of the whole log). `name` is for people.
        `reached`: a later place; the reader needs nothing before it, and everything behind.

        A start that the log has lost moves to the place before the loss, even if a batch of the
        same name was logged again since: other batches may stand before it now.
        """
        reader = LogReader(self, self.before_losses(start), name, reached)
        self._readers[reader] = None
        return reader

    def before_losses(self, place: Place | None) -> Place | None:
        """Return `place`, or the place before a loss if it was lost since (None: the start)."""
        return self._knowledge.before_losses(place)

    @property
    def readers(self) -> list[LogReader]:
        """Open readers."""
        return list(self._readers)

    def safe_position(self, place: Place | None) -> Place | None:
        """Position that a stage which has done everything up to `place` may store: `place`, with
        its own offset where known, or the last checked place if that comes first. None: the start.
        """
        return self._knowledge.safe_position(place)

    def is_after(self, place: Place, other: Place | None) -> bool:
        """True if `place` comes after `other`, a place that was read back (None: the start)."""
        return self._knowledge.is_after(place, other)

    def lag(self, place: Place | None) -> LogLag:
        """Messages and bytes behind `place`. Exact near the log's end, estimated far behind."""
        return self._knowledge.lag(place)

    def names_lately(self) -> Iterable[Seen]:
        """Names that were read back last, in the log's order; also names that retention ate."""
        return self._knowledge.recent

    def forget_before(self, time_ms: int) -> int:
        """Forget the names of incarnations with nothing logged since `time_ms`, except each
        origin's latest: they ended before the window. Return the number of forgotten incarnations.
        """
        return self._knowledge.forget_before(time_ms)

    async def check_now(self) -> None:
        """Read back at once what was appended until now; return when a snapshot has it. Waits while
        there is no connection.
        """
        recent = self._knowledge.recent
        target = recent.last_unchecked
        is_checked = target is None and self._knowledge.checked == recent.checked
        while not is_checked and not self._closing:
            self._hurry.set()
            await self._check_waiters.wait()
            is_checked = target is None or not recent.is_awaited(target)

    def give_up(self, reason: str) -> None:
        """End the present connection for a reason that the broker does not report; another follows,
        over another node where there are several.
        """
        if self._log is not None:
            self._log.fail(LogClosed(reason))

    async def read_to_end(self, from_offset: int) -> AsyncIterator[list[LoggedBatch]]:
        """Yield the batches from `from_offset` (0: the start) to the log's present end.

        For recovery, and for a packer that has appended its mark. Raises LogClosed if the
        connection ends meanwhile: begin again.
        """
        log = await self.connected()
        end = await log.end()
        if end is None or end < from_offset:
            return
        cursor = await log.read(from_offset, hurried=True)
        try:
            offset = -1
            while offset < end:
                records = await cursor.next(_READ_BACK_AHEAD)
                offset = records[-1].offset
                try:
                    decoded = [
                        decode_record(record, self._knowledge.newest_format) for record in records
                    ]
                except UnknownRecord as error:
                    # The writer's check meets the record too, and ends the node.
                    raise LogClosed(str(error)) from error
                batches = [batch for batch in decoded if isinstance(batch, LoggedBatch)]
                if batches:
                    yield batches
        finally:
            await cursor.close()

    # Appending

    async def append(self, header: BatchHeader, data: bytes) -> Appended:
        """Call `append_nowait`, then wait. Cancelling does not undo the append."""
        return await asyncio.shield(self.append_nowait(header, data))

    def append_nowait(self, header: BatchHeader, data: bytes) -> asyncio.Future[Appended]:
        """Append a batch after all earlier ones, unless the log has its name.

        A second copy of a name that is being appended waits for the first copy's outcome and gets
        the same failure: no batch counts as logged before it is. The future raises LogClosed when
        there is no connection or it ended first: `logged` shows in the next run if the batch is
        there. Raises LogRefused for a batch that is too large.
        """
        return self._flights.append(header, data)

    # For readers (LogSource)

    @property
    def ended_answered(self) -> bool:
        """True if nothing that was appended can come into the log after the end."""
        return self._flights.ended_answered

    @property
    def ended(self) -> bool:
        """True once closed for good."""
        return self._state is LogState.CLOSED

    async def connected(self) -> SiteLog:
        """Wait for the log, connected and checked. Raises LogClosed when closed for good."""
        while True:
            await self.running()
            if self._log is not None and not self._log.closed.done():
                return self._log
            await asyncio.sleep(0)  # the end of the run is about to be noted

    async def scans(self) -> LogScans:
        """Wait for the scans of a connected and checked log. Raises LogClosed when closed for
        good.
        """
        await self.connected()
        assert self._scans is not None  # as long as there is a log
        return self._scans

    def own_offset_of(self, place: Place) -> int | None:
        """Offset of the place's name, or None if only a lower bound, the place's, is known."""
        seen = self._knowledge.recent.find(place.name)
        return None if seen is None else seen.offset

    def forget_reader(self, reader: LogReader) -> None:
        """Drop a closed reader."""
        self._readers.pop(reader, None)

    # The life of the log

    async def run_forever(self) -> None:
        """Keep the log going until `close` or cancellation."""
        self._knowledge.load()
        me = asyncio.current_task()
        assert me is not None
        try:
            while not self._closing:
                # A task of its own, so that `close` need not wait for a connection to be made.
                self._connection = asyncio.create_task(self._one_connection())
                try:
                    await self._connection
                except SiteLogError as error:
                    self._end_run(f"{type(error).__name__}: {error}")
                except asyncio.CancelledError:
                    if me.cancelling() or not self._closing:
                        raise
                if not self._closing:
                    await self._back_off()
        finally:
            self._closing = True
            self._end_run("the log was closed")
            self._set_state(LogState.CLOSED, "closed by this node")
            self._run_waiters.wake()
            self._check_waiters.wake()
            self._tail.wake()
            self._knowledge.save()

    async def close(self) -> None:
        """End `run_forever`, which saves a last snapshot. Unconfirmed appends are in doubt."""
        self._closing = True
        self._hurry.set()
        if self._connection is not None:
            self._connection.cancel()
            await asyncio.wait([self._connection])

    async def _one_connection(self) -> None:
        log = await self._connect()
        scans = LogScans(log, self._knowledge.newest_format)
        self.counts.connections += 1
        try:
            self._set_state(LogState.CHECKING, "")
            checked = await check_log(log, self._knowledge, self._flights.data_of)
            self._follower.restart_readers(checked)
            # Before the run: a changed log ID must be saved before it is announced.
            self._knowledge.save()
            if checked.lost or checked.anew:
                # A power cut must not undo the loss when the log has new batches by then: an old
                # place might be found at its old offset, behind new batches.
                await self._memory.synced()
            self._begin_run(log, scans)
            await self._follower.follow(checked.cursor)
        except UnknownRecord as error:
            self._events.on_unknown(error)
            await asyncio.Event().wait()  # until closed: connecting again would mend nothing
        finally:
            try:
                await log.close()
            finally:
                await scans.close()

    def _begin_run(self, log: SiteLog, scans: LogScans) -> None:
        if log.closed.done():
            raise LogClosed(log.closed.result())
        self._log = log
        self._scans = scans
        self._failed_attempts = 0
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._flights.begin(log)
        self._run = LogRun(self._random_bytes(_RUN_BYTES), self._knowledge.log_id, ended)
        log.closed.add_done_callback(partial(self._on_log_closed, log))
        self._set_state(LogState.RUNNING, "")
        self._run_waiters.wake()

    def _on_log_closed(self, log: SiteLog, closed: asyncio.Future[str]) -> None:
        if log is self._log:
            self._end_run(closed.result())
            self._hurry.set()

    def _end_run(self, reason: str) -> None:
        run, self._run, self._log = self._run, None, None
        self._scans = None
        self._flights.end(reason)
        # A run that ends by our own closing is no trouble, and nobody connects again.
        is_known = self._closing or (self._state, self._state_reason) == (
            LogState.CONNECTING,
            reason,
        )
        if not is_known:
            self._set_state(LogState.CONNECTING, reason)
        if run is not None:
            run.ended.set_result(reason)

    async def _back_off(self) -> None:
        self._failed_attempts += 1
        self._hurry.clear()
        await set_within(self._backoff.delay_s(self._failed_attempts), self._hurry)

    def _set_state(self, state: LogState, reason: str) -> None:
        self._state, self._state_reason = state, reason
        self._events.on_state(state, reason)
