"""A connection to a broker's stream listener: the only module that knows rstream.

rstream gives the connection, the login and the rare requests. Its Producer and Consumer are not
used: they declare again by themselves after a break and silently drop what was in flight, and a
handler's exception skips the rest of its chunk. Nor is its listener, which

- reads the socket 256 bytes at a time (a sixth of a relay's CPU),
- dies unseen when it cannot decode a frame, and
- copies a chunk four times (chunks of 44 MB have been seen).

So `StreamConnection` brings its own, `FrameReceiver`, and hands the three hot frames to
`stream_frames`, all others to rstream's decoder. rstream's errors become the log's here, in
`log_errors`.

The publisher has no name: the broker then stores all records and deduplicates nothing (under a name
it confirms and drops records with an ID that it has passed).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from enum import Enum
from typing import Protocol, TypeVar

from rstream import exceptions, schema
from rstream.client import Client
from rstream.connection import Connection
from rstream.constants import Key, OffsetType, SlasMechanism
from rstream.encoding import decode_frame, encode_frame

from federation.brokers.addresses import StreamAddress
from federation.brokers.endpoint import Endpoint
from federation.brokers.tls_refusals import not_offered, tls_refusal
from relay.log.rabbit import stream_frames
from relay.log.rabbit.frame_receiver import FrameReceiver
from relay.log.rabbit.stream_frames import Chunk
from relay.log.site_log import LogClosed, LogMissing, LogRefused, SiteLogError

T = TypeVar("T")
F = TypeVar("F", bound=schema.Frame)

logger = logging.getLogger(__name__)

_FRAME_MAX = 1024 * 1024
"""Most bytes of a frame: the broker's default. 4.3 closes the connection on a larger frame."""
PUBLISHER = 0
_OLD_EXTERNAL = (
    "streams of RabbitMQ before 3.12, but for late 3.10 and 3.11, take no login by certificate: "
    "give the site a `password`, with which the log then logs in, or upgrade the broker"
)
_CONNECT_S = 3.0
"""Time for opening the socket to a node."""
_LAST_WORD_S = 1.0
"""Time for handling bytes that were read from a socket before it went."""


class ConnectionClosedError(Exception):
    """The socket went while a request waited for its answer."""


RSTREAM_FAILURES = (
    exceptions.ServerError,
    exceptions.LeaderNotAvailable,
    OSError,  # TimeoutError is one
    ConnectionClosedError,
)
"""Errors on the way to a connection, which `as_log_error` translates."""


class NoOffset(LogRefused):
    """The broker's exact "no offset": nothing was ever stored."""


class StreamListener(Protocol):
    """Receiver of a connection's events. Called from the event loop."""

    def on_confirm(self, ids: Sequence[int]) -> None:
        """Take confirms of these publishing IDs."""
        ...

    def on_chunk(self, chunk: Chunk) -> None:
        """Take a chunk of a subscription."""
        ...

    def on_metadata_update(self) -> None:
        """Note that the stream was deleted, or its leader moved."""
        ...

    def fail(self, error: SiteLogError) -> None:
        """Note that the connection is over."""
        ...


class StreamEdge(Enum):
    """The chunk at either end of a stream."""

    FIRST = OffsetType.FIRST
    LAST = OffsetType.LAST


class StreamConnection(Client):
    """rstream's client with a listener of our own. Made by `leader_connection.open_connection`.

    Requests raise rstream's errors: make them within `log_errors`.
    """

    def __init__(
        self, address: StreamAddress, heartbeat_s: int, name: str, endpoint: Endpoint | None = None
    ) -> None:
        endpoint = endpoint or address.endpoints[0]
        super().__init__(
            endpoint.host,
            endpoint.port,
            ssl_context=address.ssl_context,
            frame_max=_FRAME_MAX,
            heartbeat=heartbeat_s,
            connection_name=name,
            # Never called; its presence keeps rstream from logging tracebacks of errors that we
            # handle.
            connection_closed_handler=lambda _: None,
            sasl_configuration_mechanism=(
                SlasMechanism.MechanismExternal
                if address.is_external
                else SlasMechanism.MechanismPlain
            ),
        )
        self.endpoint = endpoint
        self._socket: _Socket | None = None
        self._is_over = False
        self._owner: StreamListener | None = None
        self._end_reason = ""

    async def start(self) -> None:
        """Open the socket at `endpoint`; rstream's own method would take an address for the name
        that TLS checks.
        """
        self._conn = self._socket = _Socket(self.endpoint, self._ssl_context, self._handle)
        await self._socket.open()
        self.start_task("listener", self._listener())

    @property
    def reads(self) -> int:
        """Number of reads that brought bytes from the broker."""
        return 0 if self._socket is None else self._socket.receiver.reads

    @property
    def is_over(self) -> bool:
        """True once the connection has ended."""
        return self._is_over

    async def stream_exists(self, stream: str) -> bool:
        """True if there is such a stream, be it without a member that answers now."""
        try:
            return await super().stream_exists(stream)
        except exceptions.StreamNotAvailable:
            return True

    def attach(self, listener: StreamListener) -> None:
        self._owner = listener
        if self._end_reason:
            listener.fail(LogClosed(self._end_reason))

    @property
    def heartbeat_s(self) -> int:
        """Heartbeat agreed with the broker; 0: none."""
        return self._heartbeat

    @property
    def frame_bytes(self) -> int:
        """Most bytes of a frame."""
        return min(_FRAME_MAX, self.frame_max)

    @property
    def advertised(self) -> tuple[str, int]:
        """Address by which the broker calls itself."""
        properties = self.server_properties or {}
        return (
            properties.get("advertised_host", self.host),
            int(properties.get("advertised_port", self.port)),
        )

    def write(self, frame: bytes) -> None:
        """Hand a frame over to the socket; `closed` reports if it may be lost."""
        transport = self._transport()
        if transport is not None:
            transport.write(frame)

    async def subscribe_at(self, stream: str, number: int, where: int | StreamEdge) -> None:
        """Subscribe from an offset or an edge on, with credit for one chunk."""
        if isinstance(where, StreamEdge):
            spec = schema.OffsetSpec(where.value)
        else:
            spec = schema.OffsetSpecOffset(OffsetType.OFFSET, where)
        await self.subscribe(stream, number, spec, initial_credit=1)

    def give_credit(self, number: int, chunks: int) -> None:
        """Let the broker send a subscription `chunks` more chunks."""
        self.write(encode_frame(schema.Credit(number, chunks)))

    async def send_frame(self, frame: schema.Frame, version: int = 1) -> None:
        if self._transport() is None:
            raise ConnectionClosedError(await self._why_gone())
        await super().send_frame(frame, version)

    async def _why_gone(self) -> str:
        """Reason why the socket is gone, as its reader knows, perhaps only in a moment: a broker
        that refuses our certificate does so when the handshake is over for us.
        """
        listener = self._tasks.get("listener")
        if listener is not None:
            await asyncio.wait({listener}, timeout=_LAST_WORD_S)
        return self._end_reason or "the socket is gone"

    def _transport(self) -> asyncio.Transport | None:
        """Return the socket's transport, or None once the socket takes no more bytes: uvloop's
        transport then raises RuntimeError, before the connection learns so.
        """
        transport = None if self._socket is None else self._socket.transport
        return None if transport is None or transport.is_closing() else transport

    async def sync_request(
        self, frame: schema.Frame, resp_schema: type[F], raise_exception: bool = True
    ) -> F:
        answer = await super().sync_request(frame, resp_schema, raise_exception)
        if isinstance(answer, schema.SaslHandshakeResponse):
            # rstream asserts it, which would end the node.
            wanted = self._sasl_configuration_mechanism.value
            if wanted not in answer.mechanisms:
                raise LogRefused(not_offered(wanted, " ".join(answer.mechanisms)))
        return answer

    async def _heartbeat_sender(self) -> None:
        # rstream's own would warn of a silence wherever frames come that it does not see; by
        # `reads` the log knows of a real one.
        while self._heartbeat:
            await self.send_frame(schema.Heartbeat())
            await asyncio.sleep(self._heartbeat)

    async def goodbye(self) -> None:
        await self.sync_request(
            schema.Close(self._corr_id_seq.next(), code=1, reason="OK"),
            resp_schema=schema.CloseResponse,
        )

    def abort(self, reason: str) -> None:
        """Drop the connection now: no goodbye, no waiting."""
        self._is_not_closed = False
        self._is_over = True
        for waiter in list(self._waiters.values()):
            if not waiter.done():
                waiter.set_exception(ConnectionClosedError(reason))
                waiter.exception()  # raised in whoever waits, if anybody does
        for task in self._tasks.values():
            if task is not asyncio.current_task():
                task.cancel()
        if self._socket is not None and self._socket.transport is not None:
            self._socket.transport.abort()

    async def ended(self) -> None:
        """Wait until the connection's tasks are gone."""
        tasks = [t for t in self._tasks.values() if t is not asyncio.current_task()]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _listener(self) -> None:
        assert self._socket is not None
        try:
            await self._socket.receiver.over
            why = tls_refusal(None, self._ssl_context, in_login=not self.reads)
            reason = why or "the broker closed the connection"
        except (OSError, _ServerClosed) as error:
            why = tls_refusal(error, self._ssl_context, in_login=not self.reads)
            reason = why or f"connection lost: {error}"
        except Exception as error:
            logger.exception("stream connection to %s:%s out of step", self.host, self.port)
            reason = f"out of step with the broker: {error!r}"
        self._end_reason = reason
        if self._owner is not None:
            self._owner.fail(LogClosed(reason))
        else:
            self.abort(reason)

    def _handle(self, frame: memoryview) -> None:
        _, key, version = stream_frames.FRAME_HEADER.unpack_from(frame)
        if key == stream_frames.KEY_PUBLISH_CONFIRM and version == 1 and self._owner is not None:
            self._owner.on_confirm(stream_frames.confirmed_ids(frame[8:]))
        elif key == stream_frames.KEY_DELIVER and version == 1 and self._owner is not None:
            with frame[8:] as body:
                self._owner.on_chunk(stream_frames.read_deliver(body))
        else:
            self._handle_rare(decode_frame(bytes(frame[4:])))

    def _handle_rare(self, frame: schema.Frame) -> None:
        waiter = self._waiters.pop((frame.key, frame.corr_id), None)
        if waiter is not None:
            if not waiter.done():
                waiter.set_result(frame)
        elif isinstance(frame, schema.Close):
            raise _ServerClosed(f"the broker says: {frame.reason}")
        elif isinstance(frame, schema.MetadataUpdate | schema.PublishError):
            if self._owner is not None:
                self._owner.on_metadata_update()
        elif frame.key is not Key.Heartbeat:
            logger.debug("unasked frame: %r", frame)


class _ServerClosed(Exception):
    pass


class _Socket(Connection):
    """rstream's connection, to the address that a name stands for, with a receiver of our own."""

    def __init__(
        self,
        endpoint: Endpoint,
        ssl_context: ssl.SSLContext | None,
        take: Callable[[memoryview], None],
    ) -> None:
        super().__init__(endpoint.host, endpoint.port, ssl_context)
        self.receiver = FrameReceiver(take)
        self.transport: asyncio.Transport | None = None
        self._endpoint = endpoint

    async def open(self) -> None:
        context = self._ssl_context
        try:
            async with asyncio.timeout(_CONNECT_S):
                self.transport, _ = await asyncio.get_running_loop().create_connection(
                    lambda: self.receiver,
                    self._endpoint.dialled,
                    self._endpoint.port,
                    ssl=context,
                    server_hostname=self._endpoint.host if context else None,
                )
        except TimeoutError:
            raise ConnectionError(f"no connection within {_CONNECT_S:g} s") from None

    async def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    async def write_frame(self, frame: schema.Frame, version: int = 1) -> None:
        assert self.transport is not None
        self.transport.write(encode_frame(frame, version))


async def stream_cluster(address: StreamAddress, name: str, within_s: float) -> str:
    """Name of the cluster whose node listens at the first endpoint. Raises SiteLogError."""
    connection = StreamConnection(address, 60, name)
    try:
        async with asyncio.timeout(within_s):
            await log_in(connection, address)
            return str((connection.server_properties or {}).get("cluster_name", ""))
    except RSTREAM_FAILURES as error:
        raise as_log_error(error, address, "") from error
    finally:
        connection.abort("the cluster's name is known, or never will be")
        await connection.ended()


async def log_in(connection: StreamConnection, address: StreamAddress) -> None:
    """Log in. Raises the errors of rstream and of the socket, LogClosed, LogRefused."""
    await connection.start()
    try:
        await connection.authenticate(address.vhost, address.user, address.password)
    except ConnectionClosedError as error:
        if address.is_external and connection.reads:
            raise LogClosed(f"{error}: {_OLD_EXTERNAL}") from error
        raise
    if not connection.heartbeat_s:
        raise LogRefused("the broker's stream.heartbeat is 0: its silence could not be noticed")


def is_leaderless(error: Exception) -> bool:
    """True if a node answers that the stream has no leader now."""
    return isinstance(error, exceptions.LeaderNotAvailable | exceptions.StreamNotAvailable)


def as_log_error(error: Exception, address: StreamAddress, stream: str) -> SiteLogError:
    """Translate an error of RSTREAM_FAILURES, raised on the way to a connection."""
    if isinstance(error, exceptions.ServerError):
        return _translate(error, stream)
    if isinstance(error, exceptions.LeaderNotAvailable):
        return LogClosed(str(error))
    why = tls_refusal(error, address.ssl_context) or str(error) or "no answer in time"
    return LogClosed(f"no connection to {address.where}: {why}")


async def answer_or_cancelled(request: Awaitable[T]) -> T:
    """Await the broker's answer to a request of rstream's.

    rstream waits by `wait_for`, which in Python 3.11 forgets a cancel that comes in one turn with
    the answer. The canceller would then wait for ever for a task that goes on.
    """
    task = asyncio.current_task()
    assert task is not None
    cancels = task.cancelling()
    answer = await request
    if task.cancelling() > cancels:
        raise asyncio.CancelledError
    return answer


@contextlib.contextmanager
def log_errors(stream: str) -> Iterator[None]:
    """Raise rstream's errors within as the log's errors."""
    try:
        yield
    except exceptions.ServerError as error:
        raise _translate(error, stream) from error
    except TimeoutError as error:
        raise LogClosed("the broker did not answer a request in time") from error
    except (OSError, ConnectionClosedError) as error:
        raise LogClosed(f"connection lost: {error}") from error


def _translate(error: exceptions.ServerError, stream: str) -> SiteLogError:
    if isinstance(error, exceptions.OffsetNotFound):
        return NoOffset(f"no offset is stored in stream {stream!r}")
    if isinstance(error, exceptions.StreamDoesNotExist):
        return LogMissing(f"there is no stream {stream!r}: `isthmus apply` makes it")
    what = f"{type(error).__name__} for stream {stream!r}"
    if isinstance(error, exceptions.StreamNotAvailable | exceptions.InternalError):
        return LogClosed(what)
    return LogRefused(what)
