"""One direction of a line, shared by its connections: the router's queue before the rate cap."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Protocol

from wan_proxy.condition import DirectionCondition
from wan_proxy.router_queue import RouterQueue


class Mark(Enum):
    """End of a connection in one direction; travels behind the bytes, and is late with them."""

    END = "FIN"
    BREAK = "RST"


Item = bytes | Literal[Mark.END, Mark.BREAK]


class Queuing(Protocol):
    """Stream of one connection as the line's queue sees it."""

    def departed(self, item: Item, at: float) -> None:
        """Send on an item that has passed the rate cap."""
        ...

    def condition_changed(self) -> None: ...
    def regulate(self) -> None: ...
    def deliver(self) -> None: ...


@dataclass(slots=True)
class DirectionCounts:
    """Running counts of one direction of a line.

    `bytes_read` came from the sources; `bytes_delivered` went to the sinks' sockets;
    `bytes_dropped` were black-holed or died with their connection; the rest is in flight.
    """

    bytes_read: int = 0
    bytes_delivered: int = 0
    bytes_dropped: int = 0
    late_segments: int = 0


@dataclass(frozen=True, slots=True)
class DirectionStatistics:
    """Copy of one direction's counts; `bytes_held` is in the proxy at present."""

    bytes_read: int
    bytes_delivered: int
    bytes_dropped: int
    late_segments: int
    bytes_held: int


class Direction:
    """Shared part of a direction; each connection has a `Stream` on the direction."""

    def __init__(
        self, condition: DirectionCondition, round_trip_ms: float, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.loop = loop
        self.counts = DirectionCounts()
        self.is_cut = False
        self.streams: set[Queuing] = set()
        self._condition = condition
        self._round_trip_ms = round_trip_ms
        self._router: RouterQueue[Queuing, Item] = RouterQueue(
            condition.rate_bits_per_s, condition.queue_limit_bytes, loop.time()
        )
        self._waiting_for_room: dict[Queuing, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        # Reading is one call from start to end, so one buffer serves all connections.
        self._read_buffer = memoryview(bytearray(condition.read_bytes))

    @property
    def condition(self) -> DirectionCondition:
        return self._condition

    @property
    def read_buffer(self) -> memoryview:
        return self._read_buffer

    @property
    def late_by_seconds(self) -> float:
        late_by_ms = self._condition.late_by_ms
        return (self._round_trip_ms if late_by_ms is None else late_by_ms) / 1000

    @property
    def has_room(self) -> bool:
        return not self._router.is_full

    @property
    def must_queue(self) -> bool:
        """True if bytes have to pass the router's queue, also while an old cap drains."""
        return self._condition.rate_bits_per_s is not None or len(self._router) > 0

    def queue(self, stream: Queuing, item: Item, size: int) -> None:
        """Put an item in the router's queue; `Stream.departed` gets the item back."""
        self._router.push(stream, item, size, self.loop.time())
        self._arm()

    def wait_for_room(self, stream: Queuing) -> None:
        """Call the stream's `regulate` when the queue has room."""
        self._waiting_for_room[stream] = None

    def set(self, condition: DirectionCondition, round_trip_ms: float) -> None:
        """Change the condition; bytes in flight keep their time of arrival."""
        if condition.read_bytes != len(self._read_buffer):
            self._read_buffer = memoryview(bytearray(condition.read_bytes))
        self._condition = condition
        self._round_trip_ms = round_trip_ms
        self._router.change(
            condition.rate_bits_per_s, condition.queue_limit_bytes, self.loop.time()
        )
        self._pump()
        for stream in tuple(self.streams):
            stream.condition_changed()

    def cut(self) -> None:
        """Stop all movement, without a sign to any end."""
        self.is_cut = True
        self._disarm()
        for stream in tuple(self.streams):
            stream.regulate()

    def heal(self) -> None:
        """Resume; held bytes move on."""
        self.is_cut = False
        self._router.restart(self.loop.time())
        self._pump()
        for stream in tuple(self.streams):
            stream.deliver()
            stream.regulate()

    def drop(self, stream: Queuing) -> None:
        """Drop the stream's items from the queue."""
        self.counts.bytes_dropped += self._router.remove(stream)
        # Not at once: the pump may be the caller, and due items must stay in order.
        self.loop.call_soon(self._pump)

    def remove(self, stream: Queuing) -> None:
        """Remove a stream, with its items in the queue."""
        self.streams.discard(stream)
        self._waiting_for_room.pop(stream, None)
        self.drop(stream)

    def close(self) -> None:
        """Stop the timer."""
        self._disarm()

    def statistics(self) -> DirectionStatistics:
        counts = self.counts
        return DirectionStatistics(
            bytes_read=counts.bytes_read,
            bytes_delivered=counts.bytes_delivered,
            bytes_dropped=counts.bytes_dropped,
            late_segments=counts.late_segments,
            bytes_held=counts.bytes_read - counts.bytes_delivered - counts.bytes_dropped,
        )

    def _arm(self) -> None:
        when = self._router.next_departure()
        if self._timer is None and when is not None and not self.is_cut:
            self._timer = call_not_before(self.loop, when, self._pump)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _pump(self) -> None:
        self._disarm()
        if self.is_cut:
            return
        for departure in self._router.pop_due(self.loop.time()):
            departure.owner.departed(departure.item, departure.at)
        self._arm()
        if self._waiting_for_room and self.has_room:
            waiting = tuple(self._waiting_for_room)
            self._waiting_for_room.clear()
            for stream in waiting:
                stream.regulate()


def call_not_before(
    loop: asyncio.AbstractEventLoop, when: float, callback: Callable[[], None]
) -> asyncio.TimerHandle:
    """Call back at `when` or up to 1 ms later, never earlier as `loop.call_at` may.

    uvloop rounds to the nearest millisecond, so a callback that finds nothing due yet and asks
    again would spin.
    """
    wait_ms = max(0, math.ceil((when - loop.time()) * 1000))
    return loop.call_later(wait_ms / 1000, callback)
