"""One direction of one connection: bytes from the source, in flight, to the sink."""

import asyncio
import math
import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from wan_proxy.condition import SEGMENT_BYTES
from wan_proxy.direction import Direction, Item, Mark, call_not_before
from wan_proxy.end import End

KERNEL_BUFFER_BYTES = 256 * 1024

Carried = TypeVar("Carried")


class Stream:
    """Path of the bytes from a source to a sink.

    `on_end` and `on_break` are called when a FIN or an RST has arrived at the sink's side. A black
    hole reads and drops, and gives no sign.
    """

    def __init__(
        self,
        direction: Direction,
        rng: random.Random,
        on_end: Callable[[], None],
        on_break: Callable[[], None],
    ) -> None:
        self.source: End | None = None
        self.sink: End | None = None
        self.is_black_hole = False
        self._direction = direction
        self._random = rng
        self._late = LateSegments(direction.condition.late_fraction, rng)
        self._queue: DelayQueue[Item] = DelayQueue()
        self._bytes_at_router = 0
        self._timer: asyncio.TimerHandle | None = None
        self._on_end = on_end
        self._on_break = on_break
        self._closed = False
        direction.streams.add(self)

    # --- from the source

    def read_buffer(self) -> memoryview:
        return self._direction.read_buffer

    def received(self, chunk: bytes) -> None:
        """Take bytes from the source's socket."""
        direction = self._direction
        direction.counts.bytes_read += len(chunk)
        if self.is_black_hole or self._closed:
            direction.counts.bytes_dropped += len(chunk)
            return
        passes_at_once = direction.condition.is_transparent and not direction.must_queue
        if passes_at_once and not self._queue and self._may_deliver():
            self._hand_over(chunk)
        else:
            self._set_out(chunk, len(chunk))
        self.regulate()

    def ended(self) -> None:
        """Record a FIN of the source."""
        self._set_out(Mark.END, 0)

    def broken(self) -> None:
        """Record the loss of the source without FIN."""
        self._set_out(Mark.BREAK, 0)

    # --- in flight

    def _set_out(self, item: Item, size: int) -> None:
        if self.is_black_hole or self._closed:
            return
        if self._direction.must_queue:
            self._bytes_at_router += size
            self._direction.queue(self, item, size)
        else:
            self._fly(item, self._direction.loop.time())
            self.deliver()

    def departed(self, item: Item, at: float) -> None:
        """Send on an item that has passed the router's queue."""
        if isinstance(item, bytes):
            self._bytes_at_router -= len(item)
        self._fly(item, at)
        self.deliver()
        self.regulate()

    def _fly(self, item: Item, at: float) -> None:
        condition = self._direction.condition
        arrives = at + condition.delay_ms / 1000
        if condition.jitter_ms:
            arrives += self._random.random() * condition.jitter_ms / 1000
        if not isinstance(item, bytes):
            self._queue.push(item, 0, arrives)
            return
        for piece, is_late in self._late.split(item):
            if is_late:
                self._direction.counts.late_segments += 1
                self._queue.push(piece, len(piece), arrives + self._direction.late_by_seconds)
            else:
                self._queue.push(piece, len(piece), arrives)

    def deliver(self) -> None:
        """Hand over all arrived items that line and sink allow."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._direction.loop.time()
        while self._may_deliver():
            item = self._queue.pop_due(now)
            if item is None:
                break
            if isinstance(item, bytes):
                self._hand_over(item)
            elif item is Mark.END:
                self._on_end()
            else:
                self._on_break()
        when = self._queue.next_arrival()
        if when is not None and self._may_deliver():
            self._timer = call_not_before(self._direction.loop, when, self._arrived)

    def _arrived(self) -> None:
        self._timer = None
        self.deliver()
        self.regulate()

    def _may_deliver(self) -> bool:
        return (
            not self._direction.is_cut
            and not self.is_black_hole
            and not self._closed
            and self.sink is not None
            and self.sink.writable
        )

    def _hand_over(self, chunk: bytes) -> None:
        if self.sink is None or not self.sink.is_open:
            self._direction.counts.bytes_dropped += len(chunk)
            return
        self._direction.counts.bytes_delivered += len(chunk)
        self.sink.write(chunk)

    # --- from the sink

    def sink_ready(self) -> None:
        """Continue, as the sink's socket takes more."""
        self.deliver()
        self.regulate()

    def sink_gone(self) -> None:
        """Adjust to the loss of the sink."""
        self.regulate()

    # --- commands of the line

    def regulate(self) -> None:
        """Read from the source exactly while the line has room."""
        if self.source is None or self._closed:
            return
        if self.is_black_hole:
            self.source.read(True)
            return
        wanted = not self._direction.is_cut and self.sink is not None
        if self.sink is not None and not self.sink.writable:
            # A sink that does not read fills the window of a long line; a short line has none.
            wanted = wanted and not self._direction.condition.is_transparent
        if wanted and not self._direction.has_room:
            wanted = False
            self._direction.wait_for_room(self)
        on_the_way = self._queue.bytes_under_way + self._bytes_at_router
        if on_the_way >= self._direction.condition.window_bytes:
            wanted = False
        self.source.read(wanted)

    def condition_changed(self) -> None:
        """Apply the direction's new condition."""
        self._late.change(self._direction.condition.late_fraction)
        self.limit_kernel_buffer()
        self.deliver()
        self.regulate()

    def limit_kernel_buffer(self) -> None:
        """Limit the kernel's receive buffer to 256 KiB, or half a second of the rate if less.

        An unlimited buffer grows to tens of megabytes on loopback: a sender would find them free
        before a line of 64 kbit/s, or after a cut, where a real WAN takes nothing any more.
        """
        if self.source is None:
            return
        rate = self._direction.condition.rate_bits_per_s
        size = KERNEL_BUFFER_BYTES if rate is None else int(rate / 16)
        self.source.limit_receive_buffer(min(max(16 * 1024, size), KERNEL_BUFFER_BYTES))

    def swallow(self) -> None:
        """Become a black hole, for bytes in flight too."""
        self.is_black_hole = True
        self._drop_all()
        self.regulate()

    def close(self) -> None:
        """Drop all items and leave the direction."""
        if not self._closed:
            self._closed = True
            self._drop_all()
            self._direction.remove(self)

    def _drop_all(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._direction.counts.bytes_dropped += self._queue.clear()
        self._direction.drop(self)
        self._bytes_at_router = 0


class DelayQueue(Generic[Carried]):
    """Pure: items that one connection has in flight in one direction, with their times of arrival.

    Nothing overtakes, whatever the jitter; a late item holds up the items behind. Times are seconds
    of any one clock.
    """

    __slots__ = ("_bytes", "_last_arrival", "_under_way")

    def __init__(self) -> None:
        self._under_way: deque[tuple[float, Carried, int]] = deque()
        self._bytes = 0
        self._last_arrival = float("-inf")

    def __len__(self) -> int:
        return len(self._under_way)

    @property
    def bytes_under_way(self) -> int:
        return self._bytes

    def push(self, item: Carried, size: int, arrives: float) -> None:
        """Add an item that arrives at this time, or with the previous item if later."""
        self._last_arrival = max(self._last_arrival, arrives)
        self._under_way.append((self._last_arrival, item, size))
        self._bytes += size

    def next_arrival(self) -> float | None:
        """Return the time of the next `pop_due`, or None while empty."""
        return self._under_way[0][0] if self._under_way else None

    def pop_due(self, now: float) -> Carried | None:
        """Remove and return the next item that has arrived by now, or None."""
        if not self._under_way or self._under_way[0][0] > now:
            return None
        _, item, size = self._under_way.popleft()
        self._bytes -= size
        return item

    def clear(self) -> int:
        """Drop everything; return the bytes dropped."""
        dropped = self._bytes
        self._under_way.clear()
        self._bytes = 0
        return dropped


class LateSegments:
    """Pure: marks a fraction of a stream's segments as late, by their place in the stream.

    One draw for each marked segment (the number of segments before it) instead of one for each
    segment: the same seed marks the same bytes, however the stream is cut into chunks.
    """

    __slots__ = ("_bytes_until", "_fraction", "_random")

    def __init__(self, fraction: float, rng: random.Random) -> None:
        self._random = rng
        self._fraction = 0.0
        self._bytes_until = 0
        self.change(fraction)

    def change(self, fraction: float) -> None:
        """Change the fraction (0 up to below 1) from the next byte on."""
        if fraction != self._fraction:
            self._fraction = fraction
            self._bytes_until = self._draw()

    def split(self, chunk: bytes) -> Iterator[tuple[bytes, bool]]:
        """Yield the chunk in pieces, each with True if late. A late piece begins where its segment
        begins; the pieces behind are not late by themselves.
        """
        start = 0
        while self._fraction and len(chunk) - start > self._bytes_until:
            if self._bytes_until:
                yield chunk[start : start + self._bytes_until], False
                start += self._bytes_until
            end = min(len(chunk), start + SEGMENT_BYTES)
            yield chunk[start:end], True
            # The rest of a segment beyond the chunk's end is late too, as order is kept behind it.
            self._bytes_until = SEGMENT_BYTES - (end - start) + self._draw()
            start = end
        if start < len(chunk):
            self._bytes_until -= len(chunk) - start
            yield (chunk[start:] if start else chunk), False

    def _draw(self) -> int:
        if not self._fraction:
            return 0
        on_time = int(math.log(1.0 - self._random.random()) / math.log(1.0 - self._fraction))
        return on_time * SEGMENT_BYTES
