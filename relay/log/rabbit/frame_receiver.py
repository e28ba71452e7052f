"""Frames of a stream connection, received into one buffer that the socket fills in place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

READ_BYTES = 256 * 1024
KEPT_BYTES = 1024 * 1024
"""Largest buffer that is kept once its frames are taken: chunks of 44 MB have been seen."""
_SIZE_BYTES = 4


class FrameReceiver(asyncio.BufferedProtocol):
    """Protocol of a socket whose bytes are frames: u32 size, then so many bytes.

    `take` is called with each whole frame, its size included. The view holds for that call alone.
    """

    def __init__(self, take: Callable[[memoryview], None]) -> None:
        self.reads = 0
        """Number of reads from the socket that brought bytes."""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Future of the connection's end; it raises the socket's error, or one of `take`."""
        self.over.add_done_callback(_retrieve)
        self._take = take
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._begin = 0
        self._end = 0

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the room behind the bytes received so far; never empty."""
        return self._buffer[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take the frames that are whole now."""
        if self.over.done():
            return  # out of step: what comes behind means nothing
        self.reads += 1
        self._end += nbytes
        try:
            missing = self._take_frames()
        except Exception as error:
            # uvloop would log the error, and read on.
            self.over.set_exception(error)
            self._begin = self._end = 0
        else:
            self._make_room(missing)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end; without an error, the peer or this side closed the socket."""
        if self.over.done():
            return
        if exc is None:
            self.over.set_result(None)
        else:
            self.over.set_exception(exc)

    def _take_frames(self) -> int:
        """Take whole frames, and return the size of the frame that has begun behind them."""
        buffer, end = self._buffer, self._end
        while end - self._begin >= _SIZE_BYTES:
            body = self._begin + _SIZE_BYTES
            behind = body + int.from_bytes(buffer[self._begin : body], "big")
            if behind > end:
                return behind - self._begin
            with buffer[self._begin : behind] as frame:
                self._take(frame)
            self._begin = behind
        return _SIZE_BYTES

    def _make_room(self, frame_bytes: int) -> None:
        """Leave room behind the begun frame, for the whole frame if the buffer is large enough."""
        rest = self._end - self._begin
        if not rest and len(self._buffer) > KEPT_BYTES:
            self._buffer = memoryview(bytearray(READ_BYTES))
        if not rest or self._begin + frame_bytes > len(self._buffer):
            self._buffer[:rest] = self._buffer[self._begin : self._end]
            self._begin, self._end = 0, rest
        if self._end == len(self._buffer):
            # Not for the whole frame at once: its size may be garbage.
            larger = memoryview(bytearray(min(frame_bytes, 2 * len(self._buffer))))
            larger[: self._end] = self._buffer
            self._buffer = larger


def _retrieve(over: asyncio.Future[None]) -> None:
    """Note the error as seen: whoever aborted the connection does not wait for its end."""
    if not over.cancelled():
        over.exception()
