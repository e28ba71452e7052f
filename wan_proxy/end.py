"""One end of a proxied connection: a socket's protocol, driven by the connection."""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Protocol, cast

WRITE_HIGH_BYTES = 256 * 1024
"""Write buffer at which the stream stops: the sink is slower than the line."""

_LINGER_NOT = struct.pack("ii", 1, 0)
"""SO_LINGER on, 0 s: closing drops unsent bytes and sends RST instead of FIN."""


class SourceHandler(Protocol):
    """Receiver of the bytes and end marks that an end reads."""

    def read_buffer(self) -> memoryview: ...
    def received(self, chunk: bytes) -> None: ...
    def ended(self) -> None: ...
    def broken(self) -> None: ...


class SinkHandler(Protocol):
    """Feeder of an end, called when the end's socket takes more bytes or is gone."""

    def sink_ready(self) -> None: ...
    def sink_gone(self) -> None: ...


class End(asyncio.BufferedProtocol):
    """Socket with two streams: `source` takes the bytes read, `sink` feeds the bytes to write.

    The socket may read a little before the stream asks for bytes: not every event loop lets a
    protocol begin paused.
    """

    def __init__(
        self, source: SourceHandler, sink: SinkHandler, on_lost: Callable[[], None]
    ) -> None:
        self._source = source
        self._sink = sink
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._reading = False
        self._read_ended = False
        self._write_ended = False
        self.writable = False
        self.is_lost = False

    # --- commands of the connection

    @property
    def is_open(self) -> bool:
        """True if the socket may still be read or written."""
        return self._transport is not None and not self.is_lost

    def read(self, wanted: bool) -> None:
        """Start or stop reading; without effect after the end of the input."""
        if self._transport is None or self._read_ended or wanted == self._reading:
            return
        if self._transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def write(self, chunk: bytes) -> None:
        """Write to the socket; `writable` is False while its buffer is full."""
        if self._transport is None or self._write_ended or self._transport.is_closing():
            return
        self._transport.write(chunk)

    def write_end(self) -> None:
        """Send FIN after the bytes written so far."""
        if self._transport is not None and not self._write_ended:
            self._write_ended = True
            if not self._transport.is_closing():
                self._transport.write_eof()

    def close_when_both_ended(self) -> None:
        """Close the socket once FIN has gone both ways."""
        if self._transport is not None and self._read_ended and self._write_ended:
            self._transport.close()

    def reset(self) -> None:
        """Send RST at once."""
        if self._transport is None:
            return
        if not self._transport.is_closing() and (own := self._socket()) is not None:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        self._transport.abort()

    def given_up(self) -> None:
        """Note that the connect was cancelled, perhaps as it succeeded."""
        # uvloop closes such a socket then, and tells nobody.
        if self.is_open and self._socket() is None:
            self.connection_lost(None)

    def limit_receive_buffer(self, size_bytes: int) -> None:
        """Limit the bytes that the kernel receives ahead of the proxy."""
        if self._transport is None or self._transport.is_closing():
            return
        if (own := self._socket()) is not None:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size_bytes)

    def _socket(self) -> socket.socket | None:
        assert self._transport is not None
        return cast(socket.socket | None, self._transport.get_extra_info("socket"))

    # --- callbacks of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        self._reading = True
        self.writable = True

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._source.read_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        # A copy, because a transport may keep its argument and the buffer is shared.
        self._source.received(bytes(self._source.read_buffer()[:nbytes]))

    def eof_received(self) -> bool:
        self._read_ended = True
        self._reading = False
        self._source.ended()
        self.close_when_both_ended()
        return True  # the other direction may go on: TCP closes each by itself

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self._sink.sink_ready()

    def connection_lost(self, exc: Exception | None) -> None:
        self.writable = False
        self._reading = False
        self.is_lost = True
        ended_well = self._read_ended and self._write_ended
        self._read_ended = self._write_ended = True
        self._sink.sink_gone()
        if not ended_well:
            self._source.broken()
        self._on_lost()
