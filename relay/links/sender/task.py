"""Driver of one link's sender: its machine, its connection, and its reader of the log.

A single task does everything, woken by frames, by batches read and by the clock; it carries out the
machine's actions. Before each event the machine learns if the log has sent its reader back: until
then no position may move.

Where retention has eaten batches that the link still needed, the link stops for good and reports a
gap: only a person can decide to go on without them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial

from relay import crash_points
from relay.batches.batch import BatchHeader, LoggedBatch, Place
from relay.links.forwarding import Forwarding
from relay.links.metrics import AppendTimes, Lag
from relay.links.position import LinkMemory
from relay.links.sender.actions import (
    Disconnect,
    GaveUpOn,
    ReadFrom,
    Save,
    SenderAction,
    StopReading,
)
from relay.links.sender.machine import LinkSender
from relay.links.transport.connection import MOST_WAIT_S, RESTING_WAIT_S, LinkConnection, LinkParts
from relay.links.transport.link_end import Carried, LinkEnd
from relay.links.uplink import Gate
from relay.links.wire import Send
from relay.log.open_gap import gap_reason, just_before
from relay.log.reader import ContentGap, LogGap, LogReader, PlaceLost
from relay.log.site_log import SiteLogError

log = logging.getLogger(__name__)

READ_BYTES = 1024 * 1024
UNDECIDED_POLL_S = 0.02
HELD_POLL_S = 0.1
"""Time between two looks at a batch that waits for the group; news of the batch comes by itself."""


class LinkSenderTask:
    """Driver of a link's sender; runs until cancelled."""

    def __init__(
        self,
        parts: LinkParts,
        make_machine: Callable[[Callable[[Place | None], Place | None]], LinkSender],
        memory: LinkMemory,
        times: AppendTimes,
        is_undecided: Callable[[BatchHeader], bool],
        on_gap: Callable[[LogGap], None],
        on_news: Callable[[], None] = lambda: None,
        gate: Gate | None = None,
    ) -> None:
        """`make_machine` receives the machine's `safe_place`. `on_gap` is called once; `on_news`
        whenever more batches are known to be in the receiver's log. Frames wait before the `gate`,
        if there is one.
        """
        self.name = parts.name
        self.machine = make_machine(self._safe_place)
        self._connection = LinkConnection(parts.name, parts)
        self._writer = parts.writer
        self._memory = memory
        self._times = times
        self._clock = parts.clock
        self._is_undecided = is_undecided
        self._on_gap = on_gap
        self._on_news = on_news
        self._gate = gate
        self._read_at = 0.0
        self._is_holding = False
        """True if what is undecided waits for the group, and not for the packer."""
        self._paced = False
        self._closed: str | None = None
        self._reader: LogReader | None = None
        self._sent_back = 0
        self._reading: asyncio.Task[list[LoggedBatch]] | None = None
        self._news: asyncio.Future[None] | None = None
        self._reading_for = 0
        self._undecided: list[LoggedBatch] = []
        self._wake = self._connection.wake
        self._frames: list[Carried] = []
        self._returned: list[bytes] = []
        self._forwarding: Forwarding | None = None
        self._began = memory.began()
        self.gap = ""
        """Reason why the link stopped for good; empty while it runs."""

    def change(self, forwarding: Forwarding) -> None:
        """Carry by a new filter after a change of the mesh, from the machine's next turn on."""
        self._forwarding = forwarding
        self._wake.set()

    @property
    def lag(self) -> Lag:
        """Messages and bytes that the receiver does not have yet, and their age."""
        messages, nbytes = self._writer.lag(self._waits_from)
        appended = self._writer.counts.appended_messages
        return Lag(messages, nbytes, self._times.age(appended, messages, self._clock.now()))

    @property
    def done_to(self) -> Place:
        """Place up to which the receiver has everything, or was never to get it."""
        return self.machine.place or just_before(self._began or 0)

    @property
    def _waits_from(self) -> Place | None:
        """Place behind which the log's batches may be due; None: all of the log."""
        return self.machine.place or (just_before(self._began) if self._began else None)

    @property
    def blocked(self) -> bool:
        """True while the meeting broker takes no publishes on this end's connection."""
        return self._connection.blocked

    @property
    def held_back(self) -> bool:
        """True while frames wait for the link's rate."""
        return self._gate is not None and self._gate.holds_back

    async def run(self) -> None:
        """Connect, and reconnect whenever the connection goes."""
        try:
            while self._began is None and self.machine.position is None and not self._writer.ended:
                with contextlib.suppress(SiteLogError):  # the next connection finds out
                    await self._begin()
            await self._connection.keep(
                self._one_connection, self._not_connected, lambda: not self.gap
            )
        finally:
            await self._stop()

    async def _not_connected(self, reason: str) -> None:
        await self._do(self.machine.disconnected(self._clock.now(), reason))

    async def _one_connection(self, end: LinkEnd) -> str:
        """Serve a connection until its end, and return the reason of the end."""
        machine, clock = self.machine, self._clock
        self._closed = None
        self._paced = False
        end.listen(self)
        await self._do(machine.connected(clock.now(), end.status))
        try:
            while self._closed is None:
                self._wake.clear()
                await self._turn(end)
                if self.gap:
                    self._closed = self.gap
                elif self._closed is None and not self._frames and not self._returned:
                    await self._connection.nap(machine.wakeup(), self._most_wait_s())
            reason = self._closed
            await self._feed(lambda: machine.disconnected(clock.now(), reason))
        finally:
            await end.close()
        return reason

    def _most_wait_s(self) -> float:
        if self._undecided:
            return HELD_POLL_S if self._is_holding else UNDECIDED_POLL_S
        return RESTING_WAIT_S if self.machine.rests else MOST_WAIT_S

    async def _turn(self, end: LinkEnd) -> None:
        """Hand the machine all new events, and let it look at the clock."""
        machine, clock = self.machine, self._clock
        if self._gate is not None:
            if self._gate.is_limited and not self._paced:
                self._paced = True
                end.pace(self._gate)
            machine.limit_window(self._gate.window)
        known = (machine.counters.acked, machine.counters.sessions)
        forwarding, self._forwarding = self._forwarding, None
        if forwarding is not None:
            await self._feed(partial(machine.change, forwarding, clock.now()))
            if self._reader is not None:
                self._reader.wish = machine.wish
                if self._news is not None:
                    self._news.cancel()  # a wait by the former wish
        frames, self._frames = self._frames, []
        for sender, frame in frames:
            await self._feed(partial(machine.frame, sender, frame, clock.now()))
        heads, self._returned = self._returned, []
        for head in heads:
            await self._feed(partial(machine.frame_returned, head, clock.now()))
        await self._take_batches()
        await self._feed(lambda: machine.tick(clock.now(), clock.wall_ms(), end.status))
        if (machine.counters.acked, machine.counters.sessions) != known:
            self._on_news()
        if (lost := machine.lost) is not None and not self.gap:
            self._stop_at(ContentGap(lost, self.done_to))
        self._read_on()

    async def _feed(self, event: Callable[[], Sequence[SenderAction]]) -> None:
        """Hand an event to the machine, and carry out the actions returned."""
        if self._was_sent_back():
            await self._do(self.machine.sent_back(self._clock.now()))
        if actions := event():
            await self._do(actions)

    # -- the log -----------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Record where the log begins: all of the log is this link's from now on. If retention eats
        batches that the receiver lacks, even before the link's first session, there is a gap.
        Raises SiteLogError.
        """
        scans = await self._writer.scans()
        self._began = await scans.first() or 0
        self._memory.begin(self._began)

    def _read_on(self) -> None:
        """Read ahead while the machine has room."""
        if self._reader is None or self._undecided or (room := self._room()) <= 0:
            return
        if self._news is not None and not self._news.done():
            return
        self._news = self._reader.news()
        if self._news is not None:
            self._news.add_done_callback(lambda _: self._wake.set())
            return
        self._reading = asyncio.create_task(
            self._reader.next_batches(room), name=f"{self.name}: read"
        )
        self._reading.add_done_callback(lambda _: self._wake.set())

    def _room(self) -> int:
        """Return how many bytes may be read at present."""
        return 0 if self._reading is not None else min(self.machine.room(), READ_BYTES)

    async def _take_batches(self) -> None:
        """Hand the batches read to the machine, up to a batch that the packer has yet to judge."""
        batches: Sequence[LoggedBatch] = ()
        if self._undecided:
            batches, self._undecided = self._undecided, []
        elif self._reading is not None and self._reading.done():
            reading, self._reading = self._reading, None
            self._read_at = self._clock.now()
            try:
                batches = reading.result()
            except LogGap as gap:
                self._stop_at(gap)
                return
            except PlaceLost as error:
                log.warning(
                    "link %s: from the log's start: %s",
                    self.name,
                    error,
                    extra={"event": "link-reads-from-start", "link": self.name},
                )
                try:
                    await self._begin()
                except SiteLogError:
                    return  # the place is reported lost once more, then
                await self._feed(lambda: self.machine.place_lost(self._clock.now()))
                return
            except SiteLogError as error:
                reason = str(error)
                await self._feed(lambda: self.machine.log_failed(self._clock.now(), reason))
                return
        elif self._reader is not None and (room := self._room()) > 0:
            batches = self._reader.at_hand(room)
            self._read_at = self._clock.now()
        now = self._clock.now()
        for number, batch in enumerate(batches):
            is_undecided = self._is_undecided(batch.header)
            if is_undecided or self.machine.is_held(batch.header, self._read_at, now):
                self._is_holding = not is_undecided
                self._undecided = list(batches[number:])
                batches = batches[:number]
                break
        if batches:
            now, session = self._clock.now(), self._reading_for
            await self._feed(partial(self.machine.batches, batches, session, now))

    def _stop_at(self, gap: LogGap) -> None:
        self.gap = gap_reason(gap)
        log.error(
            "link %s stops: %s",
            self.name,
            self.gap,
            extra={"event": "link-stopped-at-gap", "link": self.name},
        )
        self._on_gap(gap)

    async def _stop_reading(self) -> None:
        self._undecided = []
        if self._news is not None:
            self._news.cancel()
            self._news = None
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None
        if self._reader is not None:
            await self._reader.close()
            self._reader = None

    def _was_sent_back(self) -> bool:
        reader = self._reader
        return reader is not None and reader.sent_back != self._sent_back

    def _safe_place(self, place: Place | None) -> Place | None:
        return None if self._was_sent_back() else self._writer.safe_position(place)

    # -- the machine's actions ---------------------------------------------------------------

    async def _do(self, actions: Sequence[SenderAction]) -> None:
        for action in actions:
            match action:
                case Send(frame):
                    self._connection.send(frame)
                    crash_points.reach("link.sent")
                case ReadFrom(place, session, reached):
                    await self._stop_reading()
                    name = f"link {self.name}"
                    if place is None and reached is None and self._began is not None:
                        reached = just_before(self._began)
                    self._reader = self._writer.reader(place, name=name, reached=reached)
                    self._reader.wish = self.machine.wish
                    self._sent_back = 0
                    self._reading_for = session
                case StopReading():
                    await self._stop_reading()
                case Save(position, linked):
                    crash_points.reach("link.heard")
                    self._memory.save(position, linked)
                    crash_points.reach("link.kept")
                case Disconnect(reason):
                    self._connection.abort(reason)
                case GaveUpOn(name, reason):
                    log.error(
                        "link %s: %s will never be taken: %s",
                        self.name,
                        name,
                        reason,
                        extra={"event": "batch-never-taken", "link": self.name, "batch": str(name)},
                    )

    async def _stop(self) -> None:
        await self._feed(lambda: self.machine.stop(self._clock.now()))
        await self._stop_reading()
        await self._connection.close()

    # -- LinkListener ------------------------------------------------------------------------

    def on_frames(self, frames: Sequence[Carried]) -> None:
        self._frames += frames
        self._wake.set()

    def on_returned(self, head: bytes) -> None:
        self._returned.append(head)
        self._wake.set()

    def on_closed(self, reason: str) -> None:
        self._closed = reason
        self._wake.set()
