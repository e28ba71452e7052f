"""An AMQP 0-9-1 connection: socket, handshake, heartbeats, and the dispatch of events.

Decisions about bytes are in frame_reader.py and frame_writer.py; here is the I/O. The states::

    STARTING --start--> TUNING --tune--> OPENING --open-ok--> OPEN --close()--> CLOSING
        |                  |                |                   |                  |
        +------------------+----------------+-------------------+------------------+--> CLOSED

A callback that raises closes the connection (CallbackFailed): going on would skip a message.

The file is long, and one piece: each step of the table above may end in the one CLOSED, which
settles all channels and waiters together.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from itertools import count
from typing import cast

from pamqp import base as pamqp_base
from pamqp import commands, header
from pamqp import frame as pamqp_frame

from federation.brokers.tls_refusals import not_offered, tls_refusal
from relay import ticks
from relay.bulk_amqp.address import Address, Cluster
from relay.bulk_amqp.channel import Channel
from relay.bulk_amqp.errors import (
    AuthenticationFailed,
    BulkAmqpError,
    CallbackFailed,
    ConnectionClosed,
    ConnectionFailed,
    ConnectionLost,
    Misuse,
    PeerSilent,
    UnexpectedFrame,
)
from relay.bulk_amqp.frame_reader import (
    Broken,
    Confirms,
    Deliveries,
    Event,
    FrameReader,
    Method,
)
from relay.bulk_amqp.paced_writer import Pace, PacedWriter

FRAME_MAX = 131072
"""Bytes of a frame to negotiate: RabbitMQ's own default; larger frames gain nothing measurable."""

_PACED_HIGH_WATER = 64 * 1024
"""High-water mark of a paced connection: whatever was granted and the socket does not take is soon
too much."""
_HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"
TICKS_PER_HEARTBEAT = 2
_SILENT_AFTER = 2 * TICKS_PER_HEARTBEAT
_MOST_CHANNELS = 2047
_LOGIN_REFUSED = (403, 530)
_CAPABILITIES = (
    "publisher_confirms",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "authentication_failure_close",
)


class _State(Enum):
    STARTING = auto()
    TUNING = auto()
    OPENING = auto()
    OPEN = auto()
    CLOSING = auto()
    CLOSED = auto()


HEARTBEAT_S = 10
"""Interval of heartbeats (s); a peer that is silent for two counts as lost."""
_LOGIN = frozenset({_State.STARTING, _State.TUNING, _State.OPENING})


async def connect(
    uri: str | Address | Cluster,
    *,
    name: str = "isthmus",
    ssl_context: ssl.SSLContext | None = None,
    heartbeat: int = HEARTBEAT_S,
    timeout: float = 10.0,
    frame_max: int = FRAME_MAX,
    write_high_water: int = 1 << 20,
    on_blocked: Callable[[str | None], None] | None = None,
) -> Connection:
    """Open a connection and log in (PLAIN, or EXTERNAL where the address asks for it).

    ``name`` is shown in the broker's list of connections. ``ssl_context`` is used for ``amqps``
    only; without a context the system's certificates are trusted and the host name is checked.
    ``heartbeat`` in seconds (0: none, and a silent peer is never noticed), ``timeout`` in seconds
    for all of it, in a cluster for each of its nodes; ``frame_max`` and ``write_high_water`` in
    bytes: above the latter in the write buffer, ``drain()`` waits. ``on_blocked`` gets the broker's
    reason when it blocks publishers (memory, disk), None when publishers may go on.

    Raises AddressInvalid, AuthenticationFailed, ConnectionFailed.
    """

    async def connected(address: Address, dialled: str) -> Connection:
        connection = Connection(
            asyncio.get_running_loop(),
            *(address, name, heartbeat, frame_max, write_high_water, on_blocked),
        )
        await _open(connection, dialled, ssl_context, timeout)
        return connection

    if isinstance(uri, Cluster):
        return await uri.connect(connected)
    address = uri if isinstance(uri, Address) else Address.parse(uri)
    return await connected(address, address.host)


async def _open(
    connection: Connection, dialled: str, ssl_context: ssl.SSLContext | None, timeout: float
) -> None:
    address = connection.address
    context = (ssl_context or ssl.create_default_context()) if address.tls else None
    try:
        async with asyncio.timeout(timeout):
            await connection.loop.create_connection(
                lambda: connection,
                *(dialled, address.port),
                ssl=context,
                server_hostname=address.host if context else None,
            )
            await connection.wait_open()
    except TimeoutError:
        raise ConnectionFailed(f"{address} did not answer within {timeout:g} s") from None
    except OSError as error:
        why = tls_refusal(error, context) or error
        raise ConnectionFailed(f"{address} cannot be reached: {why}") from error
    finally:
        connection.abort_unless_open()


@dataclass(slots=True)
class HeartbeatWatch:
    """Watches the byte counts of both directions at every tick: when to send a heartbeat, and when
    the peer has been silent for too long. Pure.

    Time is counted in ticks of half a heartbeat, not read from a clock: a process that was paused
    or busy sees one tick late, not many ticks of silence, and so does not take its own pause for
    the peer's.
    """

    sent: int = 0
    received: int = 0
    silent_ticks: int = 0

    def tick(self, sent: int, received: int, *, listening: bool) -> tuple[bool, bool]:
        """Return two booleans: send a heartbeat now, and the peer is silent for two heartbeats.

        ``listening`` is False while our side does not read: such silence is our own.
        """
        due = sent == self.sent
        self.silent_ticks = (
            0 if received != self.received or not listening else (self.silent_ticks + 1)
        )
        self.sent, self.received = sent, received
        return due, self.silent_ticks >= _SILENT_AFTER


class Connection(asyncio.Protocol):
    """Made by ``connect()``. Not safe across threads; belongs to one event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        address: Address,
        name: str,
        heartbeat: int,
        frame_max: int,
        write_high_water: int,
        on_blocked: Callable[[str | None], None] | None,
    ) -> None:
        self.loop = loop
        self.address = address
        self.heartbeat = heartbeat
        self.frame_max = frame_max
        self.blocked: str | None = None
        self.on_blocked = on_blocked
        self.server_properties: dict[str, object] = {}
        self.bytes_received = 0
        self.bytes_sent = 0
        self._began_at = loop.time()
        self._ended_at = 0.0
        self._name = name
        self._write_high_water = write_high_water
        self._state = _State.STARTING
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader(FRAME_MAX)
        self._opened: asyncio.Future[None] = loop.create_future()
        self._closed: asyncio.Future[ConnectionClosed] = loop.create_future()
        self._channels: dict[int, Channel] = {}
        self._most_channels = _MOST_CHANNELS
        self._consumers = count(1)
        self._writable: asyncio.Future[None] | None = None
        self._pausers: set[object] = set()
        self._watch = HeartbeatWatch()
        self._timer: asyncio.TimerHandle | None = None
        self._paced: PacedWriter | None = None

    # --- for everybody --------------------------------------------------------------------------

    async def channel(self) -> Channel:
        """Open a channel. Raises ConnectionClosed, ConnectionFailed if no number is free."""
        self._check_open()
        number = next(
            (n for n in range(1, self._most_channels + 1) if n not in self._channels), None
        )
        if number is None:
            raise ConnectionFailed(f"all {self._most_channels} channels are in use: close some")
        channel = self._channels[number] = Channel(self, number)
        await channel.request(commands.Channel.Open(), commands.Channel.OpenOk)
        return channel

    async def drain(self) -> None:
        """Wait until the write buffer is below its low-water mark. Raises ConnectionClosed."""
        self._check_open()
        if self._writable is not None:
            await asyncio.shield(self._writable)
            self._check_open()

    async def close(self, timeout: float = 5.0) -> None:
        """Close by handshake, after all that was written; abort after ``timeout`` seconds, also
        when the caller is cancelled: nobody else would end a connection that holds a lock.
        """
        if self._state is _State.OPEN:
            self.send_method(0, commands.Connection.Close(200, "", 0, 0))
            self._state = _State.CLOSING
            self._resume_transport()
        give_up = self.loop.call_later(
            timeout, self._finish, ConnectionLost(0, "the peer did not answer our close in time")
        )
        self._closed.add_done_callback(lambda _: give_up.cancel())
        await self.wait_closed()

    def abort(self, reason: str) -> None:
        """Drop the socket at once, with all that it still holds; idempotent."""
        self._finish(ConnectionLost(0, reason))

    async def wait_closed(self) -> ConnectionClosed:
        """Wait until the connection is closed, by whomever; return the reason."""
        return await asyncio.shield(self._closed)

    @property
    def close_reason(self) -> ConnectionClosed | None:
        """Reason of the close, or None while the connection is open."""
        return self._closed.result() if self._closed.done() else None

    @property
    def lasted_s(self) -> float | None:
        """Seconds from begin to end, or None while the connection is open."""
        return self._ended_at - self._began_at if self._closed.done() else None

    @property
    def bytes_taken(self) -> int:
        """Bytes that the socket has taken so far: a writer's sign of progress while the connection
        is open.
        """
        return self.bytes_sent - self.bytes_waiting

    @property
    def bytes_waiting(self) -> int:
        """Bytes written, but not yet taken by the socket."""
        if self._state is _State.CLOSED or self._transport is None:
            return 0
        paced = self._paced.waiting if self._paced is not None else 0
        return self._transport.get_write_buffer_size() + paced

    @property
    def is_held_back(self) -> bool:
        """True if written bytes wait for their pace, and not for the socket."""
        return self._paced is not None and self._paced.pace.holds_back

    def pace(self, pace: Pace) -> None:
        """Write by this pace from now on. Call at most once, while the connection is open."""
        self._check_open()
        assert self._transport is not None
        self._paced = PacedWriter(pace, self._transport.writelines)
        self._transport.set_write_buffer_limits(high=_PACED_HIGH_WATER)

    # --- for channels, consumers and publishers -------------------------------------------------

    def send(self, data: bytes) -> None:
        """Write whole frames. Raises ConnectionClosed."""
        if self._transport is None or self._closed.done():
            self._check_open()
            raise Misuse("nothing can be sent before the connection is made")
        self.bytes_sent += len(data)
        if self._paced is not None:
            self._paced.write([data])
        else:
            self._transport.write(data)

    def send_pieces(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Write whole frames that lie in pieces, which must not change any more; return their size.

        Nothing is copied where the loop can do without: for bodies of megabytes.
        """
        if self._transport is None or self._closed.done():
            self._check_open()
            raise Misuse("nothing can be sent before the connection is made")
        size = sum(map(len, pieces))
        self.bytes_sent += size
        if self._paced is not None:
            self._paced.write(pieces)
        else:
            self._transport.writelines(pieces)
        return size

    def send_method(self, channel: int, frame: pamqp_base.Frame) -> None:
        self.send(pamqp_frame.marshal(frame, channel))

    def next_consumer(self) -> int:
        """Number for a consumer tag."""
        return next(self._consumers)

    def pause_reading(self, who: object) -> None:
        """Leave everything in the socket until all who paused have resumed."""
        if self._state is _State.OPEN and self._transport is not None:
            if not self._pausers:
                self._transport.pause_reading()
            self._pausers.add(who)

    def resume_reading(self, who: object) -> None:
        if who in self._pausers:
            self._pausers.discard(who)
            if not self._pausers:
                self._resume_transport()

    def forget_channel(self, channel: Channel) -> None:
        self._channels.pop(channel.number, None)
        self._reader.forget_channel(channel.number)

    def tell(self, callback: Callable[[], None]) -> None:
        """Call a foreign callback; an exception ends the connection and never passes unnoticed."""
        try:
            callback()
        except Exception as error:
            if self._closed.done():
                self.loop.call_exception_handler(
                    {"message": "a callback failed while the connection closed", "exception": error}
                )
            else:
                self._fail_by_callback(error)

    async def wait_open(self) -> None:
        await self._opened

    def abort_unless_open(self) -> None:
        """Leave no socket behind after a login that failed or was cancelled."""
        if self._state in _LOGIN:
            self._finish(ConnectionLost(0, "the login was given up"))
        if self._opened.done() and not self._opened.cancelled():
            self._opened.exception()  # connect() has raised it

    # --- asyncio.Protocol -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, as uvloop's transports do not inherit from asyncio's.
        self._transport = made = cast(asyncio.Transport, transport)
        if self._state is _State.CLOSED:
            made.abort()
            return
        made.set_write_buffer_limits(high=self._write_high_water)
        self.send(header.ProtocolHeader().marshal())

    def data_received(self, data: bytes) -> None:
        self.bytes_received += len(data)
        try:
            for event in self._reader.feed(data):
                self._dispatch(event)
                if self._state is _State.CLOSED:
                    return
        except UnexpectedFrame as error:
            self._finish(error)
        except Exception as error:
            self._fail_by_callback(error)

    def connection_lost(self, error: Exception | None) -> None:
        # A peer refuses our certificate after the handshake, which has succeeded for us.
        made = self._transport
        context = made.get_extra_info("sslcontext") if made is not None else None
        why = tls_refusal(error, context, in_login=self._state is _State.STARTING)
        text = why or str(error or "the peer ended the connection")
        self._finish(ConnectionLost(0, text))

    def pause_writing(self) -> None:
        if self._paced is not None:
            self._paced.pace.hold()
        if self._writable is None:
            self._writable = self.loop.create_future()

    def resume_writing(self) -> None:
        if self._paced is not None:
            self._paced.pace.go_on()
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    # --- inside ---------------------------------------------------------------------------------

    def _dispatch(self, event: Event) -> None:
        if isinstance(event, Broken):
            raise event.error
        if event.channel == 0 and isinstance(event, Method):
            self._take_method(event.frame)
            return
        channel = self._channels.get(event.channel)
        if channel is None:
            raise UnexpectedFrame(504, f"a frame on channel {event.channel}, which is not open")
        if isinstance(event, Deliveries):
            channel.take_deliveries(event.consumer_tag, event.messages)
        elif isinstance(event, Confirms):
            channel.take_confirms(event)
        elif isinstance(event, Method):
            channel.take_method(event.frame)
        else:
            channel.take_return(event)

    def _take_method(self, frame: pamqp_base.Frame) -> None:
        state = self._state
        if isinstance(frame, commands.Connection.Close):
            self.send_method(0, commands.Connection.CloseOk())
            self._finish(ConnectionClosed(frame.reply_code or 0, frame.reply_text))
        elif isinstance(frame, commands.Connection.CloseOk) and state is _State.CLOSING:
            self._finish(ConnectionClosed(200, "closed by us"))
        elif isinstance(frame, commands.Connection.Start) and state is _State.STARTING:
            self._answer_start(frame)
        elif isinstance(frame, commands.Connection.Tune) and state is _State.TUNING:
            self._answer_tune(frame)
        elif isinstance(frame, commands.Connection.OpenOk) and state is _State.OPENING:
            self._state = _State.OPEN
            self._opened.set_result(None)
        elif isinstance(frame, commands.Connection.Blocked):
            self._set_blocked(frame.reason or "blocked")
        elif isinstance(frame, commands.Connection.Unblocked):
            self._set_blocked(None)
        else:
            raise UnexpectedFrame(503, f"{frame.name} while {state.name.lower()}")

    def _answer_start(self, frame: commands.Connection.Start) -> None:
        self.server_properties = dict(frame.server_properties or {})
        address = self.address
        mechanism, response = "PLAIN", f"\0{address.user}\0{address.password}"
        if address.is_external:
            mechanism, response = "EXTERNAL", ""
        if mechanism not in frame.mechanisms.split():
            raise UnexpectedFrame(503, not_offered(mechanism, frame.mechanisms))
        self._state = _State.TUNING
        self.send_method(
            0,
            commands.Connection.StartOk(
                client_properties={
                    "product": "isthmus",
                    "connection_name": self._name,
                    "capabilities": dict.fromkeys(_CAPABILITIES, True),
                },
                mechanism=mechanism,
                response=response,
                locale="en_US",
            ),
        )

    def _answer_tune(self, frame: commands.Connection.Tune) -> None:
        self.frame_max = min(self.frame_max, frame.frame_max or self.frame_max)
        self._reader.frame_max = self.frame_max
        self._most_channels = min(_MOST_CHANNELS, frame.channel_max or _MOST_CHANNELS)
        if self.heartbeat:
            self.heartbeat = min(self.heartbeat, frame.heartbeat or self.heartbeat)
            self._next_tick()
        self._state = _State.OPENING
        self.send_method(
            0, commands.Connection.TuneOk(self._most_channels, self.frame_max, self.heartbeat)
        )
        self.send_method(0, commands.Connection.Open(self.address.vhost))

    def _set_blocked(self, reason: str | None) -> None:
        self.blocked = reason
        if self.on_blocked is not None:
            self.on_blocked(reason)

    def _next_tick(self) -> None:
        self._timer = self.loop.call_later(
            ticks.about(self.heartbeat / TICKS_PER_HEARTBEAT, self.loop.time()), self._tick
        )

    def _tick(self) -> None:
        due, silent = self._watch.tick(
            self.bytes_sent, self.bytes_received, listening=not self._pausers
        )
        if silent:
            self._finish(PeerSilent(0, f"nothing heard for {2 * self.heartbeat} s"))
            return
        if due:
            self.send(_HEARTBEAT)
            self._watch.sent = self.bytes_sent
        self._next_tick()

    def _resume_transport(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _check_open(self) -> None:
        if self._closed.done():
            raise self._closed.result()
        if self._state is _State.CLOSING:
            raise Misuse("the connection is being closed: open another one")

    def _fail_by_callback(self, error: Exception) -> None:
        reason = CallbackFailed(0, f"a callback raised {type(error).__name__}: {error}")
        reason.__cause__ = error
        self._finish(reason)

    def _finish(self, reason: ConnectionClosed) -> None:
        """End the connection, once, in every case: close the socket and give all waiters the
        reason.
        """
        if self._closed.done():
            return
        if self._transport is not None:
            if type(reason) is ConnectionClosed:
                self._transport.close()  # our close-ok still goes out
            else:
                self._transport.abort()
        if self._timer is not None:
            self._timer.cancel()
        in_login = self._state in _LOGIN
        self._state = _State.CLOSED
        self._ended_at = self.loop.time()
        self._closed.set_result(reason)
        self.blocked = None  # not blocked but gone, as `wait_closed` reports
        if in_login and not self._opened.done():
            self._opened.set_exception(self._why_login_failed(reason))
        self._pausers.clear()
        if self._paced is not None:
            self._paced.drop()
            self._paced = None
        self.resume_writing()
        for channel in list(self._channels.values()):
            self.tell(partial(channel.end, reason))

    def _why_login_failed(self, reason: ConnectionClosed) -> BulkAmqpError:
        if reason.code in _LOGIN_REFUSED and type(reason) is ConnectionClosed:
            return AuthenticationFailed(f"{self.address} refused us: {reason.text}", reason.code)
        return ConnectionFailed(f"{self.address}: {reason.text}", reason.code)
