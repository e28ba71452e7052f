"""Drives one link's sender: its machine, its connection, its reader of the log.

One task does everything, woken by what comes: frames, batches read, the clock. The machine says
what to do; this does it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from relay.batch import BatchHeader, LoggedBatch
from relay.link_lag import LogTotals
from relay.link_metrics import Lag
from relay.link_position import LinkMemory, LinkPosition
from relay.link_sender import (
    Disconnect,
    GaveUpOn,
    LinkSender,
    ReadFrom,
    Save,
    SenderAction,
    StopReading,
)
from relay.link_transport import Carried, LinkConnector, LinkEnd, LinkTransportError
from relay.link_wire import Send
from relay.log_reader import LogReader, PlaceLost
from relay.log_writer import LogWriter
from relay.retry import reconnect_delay_s
from relay.site_log import SiteLogError

log = logging.getLogger(__name__)

READ_BYTES = 1024 * 1024
MOST_WAIT_S = 1.0
UNDECIDED_POLL_S = 0.02


class Clock(Protocol):
    """Both clocks that a link needs."""

    def now(self) -> float:
        """Seconds, never going back."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        ...


class LinkSenderTask:
    """Runs one link's sender until cancelled."""

    def __init__(
        self,
        name: str,
        machine: LinkSender,
        connector: LinkConnector,
        writer: LogWriter,
        memory: LinkMemory,
        totals: LogTotals,
        clock: Clock,
        random: Callable[[], float],
        is_undecided: Callable[[BatchHeader], bool],
    ) -> None:
        self.name = name
        self.machine = machine
        self._connector = connector
        self._writer = writer
        self._memory = memory
        self._totals = totals
        self._clock = clock
        self._random = random
        self._is_undecided = is_undecided
        self._end: LinkEnd | None = None
        self._closed: str | None = None
        self._reader: LogReader | None = None
        self._reading: asyncio.Task[list[LoggedBatch]] | None = None
        self._reading_for = 0
        self._undecided: list[LoggedBatch] = []
        self._wake = asyncio.Event()
        self._frames: list[Carried] = []
        self._nobody: list[bytes] = []
        self._run_id = b""
        self.failure = ""
        """Why the log cannot be read; empty when it can."""

    @property
    def lag(self) -> Lag:
        """What the receiver does not have yet."""
        position = self.machine.position
        return self._totals.lag(position.totals if position else {}, self._clock.now())

    async def run(self) -> None:
        """Connect, and again whenever the connection goes."""
        failures = 0
        try:
            while True:
                run = await self._writer.running()
                if self._run_id != run.id:
                    self._run_id = run.id
                    await self._do(self.machine.log_changed(run.log_id, self._clock.now()))
                try:
                    self._end = await self._connector.connect()
                except LinkTransportError as error:
                    await self._do(self.machine.disconnected(self._clock.now(), error.reason))
                    await asyncio.sleep(reconnect_delay_s(failures, self._random))
                    failures += 1
                    continue
                began = self._clock.now()
                reason = await self._one_connection(self._end)
                failures = 0 if self._clock.now() - began > 10 else failures + 1
                log.info("link %s: %s", self.name, reason)
                await asyncio.sleep(reconnect_delay_s(failures, self._random))
        finally:
            await self._stop()

    async def _one_connection(self, end: LinkEnd) -> str:
        """Until it is gone; why."""
        machine, clock = self.machine, self._clock
        self._closed = None
        end.listen(self)
        await self._do(machine.connected(clock.now(), end.line))
        try:
            while self._closed is None:
                self._wake.clear()
                await self._turn(end)
                if self._closed is None and not self._frames and not self._nobody:
                    await self._sleep()
        finally:
            await self._stop_reading()
            await end.close()
        reason = self._closed
        await self._do(machine.disconnected(clock.now(), reason))
        return reason

    async def _turn(self, end: LinkEnd) -> None:
        """Hand the machine everything that has come, and let it look at the clock."""
        machine, clock = self.machine, self._clock
        run = self._writer.run
        if run is not None and run.id != self._run_id:
            self._run_id = run.id
            await self._do(machine.log_changed(run.log_id, clock.now()))
        frames, self._frames = self._frames, []
        for sender, frame in frames:
            await self._do(machine.frame(sender, frame, clock.now()))
        heads, self._nobody = self._nobody, []
        for head in heads:
            await self._do(machine.nobody(head, clock.now()))
        await self._take_batches()
        await self._do(machine.tick(clock.now(), clock.wall_ms(), end.line))
        self._read_on()

    async def _sleep(self) -> None:
        due = self.machine.wakeup()
        wait = MOST_WAIT_S if due is None else min(MOST_WAIT_S, max(0.0, due - self._clock.now()))
        if self._undecided:
            wait = min(wait, UNDECIDED_POLL_S)
        try:
            async with asyncio.timeout(wait):
                await self._wake.wait()
        except TimeoutError:
            return

    # -- the log -----------------------------------------------------------------------------

    def _read_on(self) -> None:
        """Read ahead while the machine has room."""
        if self._reader is None or self._reading is not None or self._undecided:
            return
        room = self.machine.room()
        if room <= 0:
            return
        self._reading = asyncio.create_task(
            self._reader.next_batches(min(room, READ_BYTES)), name=f"{self.name}: read"
        )
        self._reading.add_done_callback(lambda _: self._wake.set())

    async def _take_batches(self) -> None:
        """What was read goes to the machine, up to a batch that the packer has yet to judge."""
        batches: Sequence[LoggedBatch] = ()
        if self._undecided:
            batches, self._undecided = self._undecided, []
        elif self._reading is not None and self._reading.done():
            reading, self._reading = self._reading, None
            try:
                batches = reading.result()
            except PlaceLost as error:
                self.failure = str(error)
                await self._do(self.machine.log_failed(self._clock.now(), str(error)))
                return
            except SiteLogError as error:
                await self._do(self.machine.log_failed(self._clock.now(), str(error)))
                return
        if not batches:
            return
        self.failure = ""
        for number, batch in enumerate(batches):
            if self._is_undecided(batch.header):
                self._undecided = list(batches[number:])
                batches = batches[:number]
                break
        if batches:
            await self._do(self.machine.batches(batches, self._reading_for, self._clock.now()))

    async def _stop_reading(self) -> None:
        self._undecided = []
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None
        if self._reader is not None:
            await self._reader.close()
            self._reader = None

    # -- what the machine wants --------------------------------------------------------------

    async def _do(self, actions: Sequence[SenderAction]) -> None:
        for action in actions:
            match action:
                case Send(frame):
                    if self._end is not None:
                        self._end.send(frame)
                case ReadFrom(place, session):
                    await self._stop_reading()
                    self._reader = self._writer.reader(place, name=f"link {self.name}")
                    self._reading_for = session
                case StopReading():
                    await self._stop_reading()
                case Save(position):
                    self._save(position)
                case Disconnect(reason):
                    if self._end is not None:
                        self._end.abort(reason)
                case GaveUpOn(name, reason):
                    log.error("link %s: %s will never be taken: %s", self.name, name, reason)

    def _save(self, position: LinkPosition) -> None:
        """Not further than the log is checked: an older position costs resends, never loss."""
        safe = self._writer.safe_position(position.place)
        if safe is not None or position.place is None:
            self._memory.save(replace(position, place=safe))

    async def _stop(self) -> None:
        await self._do(self.machine.stop(self._clock.now()))
        await self._stop_reading()
        if self._end is not None:
            await self._end.close()

    # -- LinkListener ------------------------------------------------------------------------

    def on_frames(self, frames: Sequence[Carried]) -> None:
        self._frames += frames
        self._wake.set()

    def on_nobody(self, head: bytes) -> None:
        self._nobody.append(head)
        self._wake.set()

    def on_closed(self, reason: str) -> None:
        self._closed = reason
        self._wake.set()
