"""Meeting broker in memory, in real or virtual time, for simulation and tests.

It behaves as RabbitMQ does where a link can see a difference: the receiver's queue has a fixed name
and one holder, is capped, and vanishes with its connection; frames that nobody takes are returned;
a dead connection goes unnoticed until an end is informed. Faults are for the caller to set or call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial

from relay.bulk_amqp.paced_writer import Pace
from relay.links.settings import MIB
from relay.links.transport.link_end import (
    Carried,
    LinkListener,
    LinkTaken,
    LinkUnreachable,
    TransportStatus,
)

Schedule = Callable[[float, Callable[[], None]], object]
"""Function like `loop.call_later`, perhaps in virtual time."""

_OUT_HIGH_WATER = 64 * 1024

Tamper = Callable[[bytes], Sequence[bytes]]
"""Function that returns what becomes of a frame: itself, none, two, a damaged copy."""


def _untouched(frame: bytes) -> Sequence[bytes]:
    return (frame,)


@dataclass(slots=True)
class MemoryLineSettings:
    """Properties of the way to the meeting broker and back, in seconds and bytes a second."""

    delay_s: float = 0.0
    bytes_per_s: float = float("inf")
    """Speed at which the end's bytes leave. Incoming bytes are not slowed."""


class MemoryMeeting:
    """Exchanges of one link on a meeting broker.

    `cut_sender` and `cut_receiver` silently swallow whatever crosses that end's line; `reachable`
    is True if new connections can be made. `tamper_data` and `tamper_acks` see every frame.
    """

    def __init__(
        self, schedule: Schedule, *, queue_bytes: int = 17 * MIB, heartbeats_s: float = 20.0
    ) -> None:
        self.schedule = schedule
        self.heartbeats_s = heartbeats_s
        self.queue_bytes = queue_bytes
        self.reachable = True
        self.cut_sender = False
        self.cut_receiver = False
        self.tamper_data: Tamper = _untouched
        self.tamper_acks: Tamper = _untouched
        self.comes_again: Callable[[], float | None] = lambda: None
        """Function that returns after how many seconds a frame arrives a second time, whatever has
        become of its connection, like bytes of a process that had stood still; None: never."""
        self.on_heard: Callable[[], None] = lambda: None
        """Callback: a sender has dealt with its incoming frames."""
        self.bytes_published = 0
        """Bytes published by senders so far, in which a storm of resends would show."""
        self._senders: list[MemoryEnd] = []
        self._receiver: MemoryEnd | None = None

    def sender_end(self, user: str, line: MemoryLineSettings | None = None) -> MemoryEnd:
        """Return a sender's new connection. Raises LinkUnreachable."""
        if not self.reachable or self.cut_sender:
            raise LinkUnreachable("the meeting broker cannot be reached")
        end = MemoryEnd(self, user, is_sender=True, line=line or MemoryLineSettings())
        self._senders.append(end)
        return end

    def receiver_end(self, user: str, line: MemoryLineSettings | None = None) -> MemoryEnd:
        """Return the receiver's new connection. Raises LinkUnreachable, LinkTaken."""
        if not self.reachable or self.cut_receiver:
            raise LinkUnreachable("the meeting broker cannot be reached")
        if self._receiver is not None:
            raise LinkTaken("another receiver holds the queue")
        end = MemoryEnd(self, user, is_sender=False, line=line or MemoryLineSettings())
        self._receiver = end
        return end

    # Acts of an operator, or of chance

    def purge(self) -> None:
        """Empty the receiver's queue."""
        if self._receiver is not None:
            self._receiver.purge()

    def close_all(self, reason: str) -> None:
        """End every connection and inform every end, as a restart of the broker does."""
        for end in (*self._senders, *([self._receiver] if self._receiver else [])):
            end.lost(reason)

    def expire_dead(self) -> None:
        """End connections behind a cut line, as heartbeats do; their ends hear nothing."""
        if self.cut_receiver and self._receiver is not None:
            self._receiver.forgotten()
        if self.cut_sender:
            for end in tuple(self._senders):
                end.forgotten()

    def silence_noticed(self) -> None:
        """End connections behind a cut line, and inform their ends as their heartbeats do."""
        cut = [end for end in (*self._senders, self._receiver) if end and self.is_cut(end)]
        self.expire_dead()
        for end in cut:
            end.lost("heartbeats missed")

    # Between ends

    def gone(self, end: MemoryEnd) -> None:
        if end is self._receiver:
            self._receiver = None
        elif end in self._senders:
            self._senders.remove(end)

    def is_cut(self, end: MemoryEnd) -> bool:
        return self.cut_sender if end.is_sender else self.cut_receiver

    def published(self, end: MemoryEnd, frame: bytes) -> None:
        """Take in a frame that reached the broker."""
        if end.is_sender:
            self.bytes_published += len(frame)
        for copy in (self.tamper_data if end.is_sender else self.tamper_acks)(frame):
            self._pass_on(end, copy)
            again_s = self.comes_again()
            if again_s is not None:
                self.schedule(again_s, partial(self._pass_on, end, copy))

    def _pass_on(self, end: MemoryEnd, frame: bytes) -> None:
        carried = Carried(end.user, frame)
        if not end.is_sender:
            for sender in tuple(self._senders):
                sender.enqueue(carried, self.queue_bytes)
        elif self._receiver is None:
            end.returned(frame[:64])
        else:
            self._receiver.enqueue(carried, self.queue_bytes)


class MemoryEnd:
    """Connection in memory; a `LinkEnd`."""

    def __init__(
        self, meeting: MemoryMeeting, user: str, *, is_sender: bool, line: MemoryLineSettings
    ) -> None:
        self.user = user
        self.is_sender = is_sender
        self.blocked = False
        self.paused = False
        """True while the process is stopped: arriving frames wait unread."""
        self._meeting = meeting
        self._line = line
        self._process = copy_context()
        self._listener: LinkListener | None = None
        self._closed: str | None = None
        self._forgotten = False
        self._taken = 0
        self._out: deque[bytes] = deque()
        self._out_bytes = 0
        self._sending = False
        self._pace: Pace | None = None
        self._paced: deque[bytes] = deque()
        self._paced_bytes = 0
        self._granted = 0
        self._in: deque[Carried] = deque()
        self._in_bytes = 0
        self._delivering = False

    @property
    def closed(self) -> bool:
        """True once the connection has ended, for any reason."""
        return self._closed is not None

    # LinkEnd

    @property
    def status(self) -> TransportStatus:
        held_back = self._pace is not None and self._pace.holds_back
        waiting = self._out_bytes + self._paced_bytes
        return TransportStatus(self._taken, waiting, self.blocked, held_back)

    def pace(self, pace: Pace) -> None:
        if self._closed is None:
            self._pace = pace
            pace.open(self._let_through)

    def listen(self, listener: LinkListener) -> None:
        self._listener = listener
        if self._closed is not None:
            reason = self._closed
            self._later(0.0, lambda: listener.on_closed(reason))
        elif self._in:
            self._deliver_soon()

    def send(self, frame: bytes) -> None:
        if self._closed is not None:
            return
        if self._pace is not None:
            self._paced.append(frame)
            self._paced_bytes += len(frame)
            self._pace.put(len(frame))
        else:
            self._put_out(frame)

    def abort(self, reason: str) -> None:
        self._out.clear()
        self._out_bytes = 0
        self._end(reason)

    async def close(self) -> None:
        self._end("closed")

    # Faults

    def lost(self, reason: str) -> None:
        """Break the connection and inform this end, even behind a cut, as by a reset."""
        self.abort(reason)

    def unblock(self) -> None:
        self.blocked = False
        self._send_soon()

    def resume(self) -> None:
        self.paused = False
        self._deliver_soon()

    def purge(self) -> None:
        self._in.clear()
        self._in_bytes = 0

    def forgotten(self) -> None:
        """Have the broker give up the connection, unnoticed by its end."""
        self._forgotten = True
        self._in.clear()
        self._meeting.gone(self)

    # The broker's side

    def enqueue(self, carried: Carried, most_bytes: int) -> None:
        self._in.append(carried)
        self._in_bytes += len(carried.frame)
        while self._in_bytes > most_bytes:
            self._in_bytes -= len(self._in.popleft().frame)
        self._deliver_soon()

    def returned(self, head: bytes) -> None:
        def tell() -> None:
            if self._closed is None and self._listener and not self._meeting.is_cut(self):
                self._listener.on_returned(head)

        self._later(self._line.delay_s, tell)

    # Movement of frames

    def _let_through(self, nbytes: int) -> None:
        # The line takes whole frames, each once its last byte may go.
        self._granted += nbytes
        while self._paced and len(self._paced[0]) <= self._granted:
            frame = self._paced.popleft()
            self._granted -= len(frame)
            self._paced_bytes -= len(frame)
            self._put_out(frame)
        if self._pace is not None and self._out_bytes > _OUT_HIGH_WATER:
            self._pace.hold()

    def _put_out(self, frame: bytes) -> None:
        self._out.append(frame)
        self._out_bytes += len(frame)
        self._send_soon()

    def _send_soon(self) -> None:
        if self._sending or not self._out or self.blocked:
            return
        self._sending = True
        self._later(len(self._out[0]) / self._line.bytes_per_s, self._sent)

    def _sent(self) -> None:
        self._sending = False
        if not self._out or self._closed is not None:
            return
        if self._meeting.is_cut(self):
            self._later(1.0, self._send_soon)  # the socket's buffer is full
            return
        frame = self._out.popleft()
        self._out_bytes -= len(frame)
        self._taken += len(frame)
        if self._pace is not None and self._out_bytes <= _OUT_HIGH_WATER:
            self._pace.go_on()
        self._later(self._line.delay_s, lambda: self._arrived(frame))
        self._send_soon()

    def _arrived(self, frame: bytes) -> None:
        if not self._forgotten and not self._meeting.is_cut(self):
            self._meeting.published(self, frame)

    def _deliver_soon(self) -> None:
        if not self._delivering and self._listener is not None:
            self._delivering = True
            self._later(self._line.delay_s, self._deliver)

    def _deliver(self) -> None:
        self._delivering = False
        if self._closed is not None or self.paused or not self._in or self._listener is None:
            return
        if self._meeting.is_cut(self):
            self._later(1.0, self._deliver_soon)
            return
        frames = list(self._in)
        self._in.clear()
        self._in_bytes = 0
        self._listener.on_frames(frames)
        if self.is_sender:
            self._meeting.on_heard()

    def _end(self, reason: str) -> None:
        if self._closed is not None:
            return
        self._closed = reason
        self._in.clear()
        if self._pace is not None:
            self._paced.clear()
            self._paced_bytes = 0
            self._pace.close()
            self._pace = None
        if self._meeting.is_cut(self):
            # The broker notices only once its heartbeats fail.
            self._later(self._meeting.heartbeats_s, lambda: self._meeting.gone(self))
        else:
            self._meeting.gone(self)
        listener = self._listener
        if listener is not None:
            self._later(0.0, lambda: listener.on_closed(reason))

    def _later(self, delay: float, call: Callable[[], None]) -> None:
        # Calls run in the context of the end's own process, whoever schedules them.
        self._process.copy().run(self._meeting.schedule, delay, call)
