"""A site's log as a RabbitMQ stream: the only module that knows rstream.

rstream gives the connection, the log-in and the rare requests. Its Producer and Consumer are not
used: they declare again by themselves after a break and drop what was in flight without a word,
and a handler's exception skips the rest of its chunk. Nor is its listener, which

- reads the socket 256 bytes at a time (a sixth of a relay's CPU),
- dies unseen when it cannot decode a frame, and
- copies a chunk four times (chunks of 44 MB have been seen).

So `_Connection` brings its own, which hands the three hot frames to `stream_frames` and anything
else to rstream's decoder. One RabbitLog is one connection; it ends once, with one reason.

The publisher has no name: the broker then stores whatever comes and deduplicates nothing (with a
name it confirms and drops what bears an ID that it has passed). IDs are dense in a connection and
serve only to match confirms.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rstream import exceptions, schema
from rstream.client import Client
from rstream.constants import Key, OffsetType
from rstream.encoding import decode_frame, encode_frame

from relay import stream_frames
from relay.site_log import (
    MAX_UNCONFIRMED_BYTES,
    LogClosed,
    LogMissing,
    LogRefused,
    Record,
    SiteLogError,
)
from relay.stream_frames import Chunk

logger = logging.getLogger(__name__)
T = TypeVar("T")

_READ_BYTES = 256 * 1024
_FRAME_MAX = 1024 * 1024
"""The broker's own default. 4.3 closes the connection on a larger frame."""
_PUBLISHER = 0
_SUBSCRIPTIONS = 256
_EXTRA_CHUNKS = 8
"""Chunks that all cursors together may have under way beyond one each: 32 MiB at the worst."""
_MARK_DEADLINE_S = 5.0
_GOODBYE_S = 1.0


@dataclass(frozen=True, slots=True)
class StreamAddress:
    """Where and as whom to find a broker's stream listener."""

    host: str
    port: int
    vhost: str
    user: str
    password: str = field(repr=False)
    ssl_context: ssl.SSLContext | None = None


@dataclass(slots=True)
class _Submission:
    records: Sequence[bytes]
    done: Callable[[SiteLogError | None], None]
    written: int = 0
    last_id: int = -1


class RabbitLog:
    """SiteLog over one stream connection. Make one with `open_rabbit_log`."""

    def __init__(
        self, connection: _Connection, stream: str, mark_name: str, heartbeat_s: int
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._mark_name = mark_name
        self._loop = asyncio.get_running_loop()
        self._closed: asyncio.Future[str] = self._loop.create_future()
        self._error: SiteLogError | None = None
        self._frame_bytes = min(_FRAME_MAX, connection.frame_max)
        self._queue: deque[_Submission] = deque()
        self._written: deque[_Submission] = deque()
        self._costs: deque[int] = deque()
        self._unconfirmed_bytes = 0
        self._next_id = 0
        self._next_confirm = 0
        self._confirmed_early: set[int] = set()
        self._cursors: dict[int, _Cursor] = {}
        self._subscription_seed = 0
        self._extra_chunks = 0
        self._inquiry: asyncio.Task[None] | None = None
        self._silent_checks = 0
        self._heard_at_check = -1
        self._watch_every_s = heartbeat_s / 2
        self._watchdog = self._loop.call_later(self._watch_every_s, self._watch)
        connection.attach(self)

    @property
    def closed(self) -> asyncio.Future[str]:
        return self._closed

    @property
    def max_record_bytes(self) -> int:
        return (
            self._frame_bytes
            - stream_frames.PUBLISH_OVERHEAD_BYTES
            - stream_frames.MESSAGE_OVERHEAD_BYTES
        )

    # Appending

    def submit(self, records: Sequence[bytes], done: Callable[[SiteLogError | None], None]) -> None:
        if self._error is not None:
            self._loop.call_soon(done, self._gone())
            return
        most = self.max_record_bytes
        for record in records:
            if len(record) > most:
                raise LogRefused(f"a record of {len(record)} bytes, the broker takes {most}")
        if not records:
            raise ValueError("no records")
        self._queue.append(_Submission(records, done))
        self._write_what_fits()

    async def append(self, records: Sequence[bytes]) -> None:
        outcome: asyncio.Future[None] = self._loop.create_future()

        def done(error: SiteLogError | None) -> None:
            if outcome.done():
                return  # the caller was cancelled and wants to know nothing any more
            if error is None:
                outcome.set_result(None)
            else:
                outcome.set_exception(error)

        self.submit(records, done)
        await outcome

    def _write_what_fits(self) -> None:
        frame: list[bytes] = []
        frame_bytes = stream_frames.PUBLISH_OVERHEAD_BYTES
        while self._queue:
            submission = self._queue[0]
            while submission.written < len(submission.records):
                record = submission.records[submission.written]
                cost = len(record) + stream_frames.MESSAGE_OVERHEAD_BYTES
                unconfirmed = self._unconfirmed_bytes
                if unconfirmed and unconfirmed + cost > MAX_UNCONFIRMED_BYTES:
                    self._write(frame)
                    return
                if frame and frame_bytes + cost > self._frame_bytes:
                    self._write(frame)
                    frame = []
                    frame_bytes = stream_frames.PUBLISH_OVERHEAD_BYTES
                frame.append(record)
                frame_bytes += cost
                self._costs.append(cost)
                self._unconfirmed_bytes += cost
                submission.written += 1
            submission.last_id = self._next_id + len(frame) - 1
            self._written.append(self._queue.popleft())
        self._write(frame)

    def _write(self, frame: list[bytes]) -> None:
        if frame:
            self._connection.write(stream_frames.publish_frame(_PUBLISHER, self._next_id, frame))
            self._next_id += len(frame)

    def on_confirm(self, ids: Sequence[int]) -> None:
        next_confirm = self._next_confirm
        for publishing_id in ids:
            if publishing_id == next_confirm:
                next_confirm += 1
                self._unconfirmed_bytes -= self._costs.popleft()
            else:
                self._confirmed_early.add(publishing_id)
        while next_confirm in self._confirmed_early:
            self._confirmed_early.discard(next_confirm)
            next_confirm += 1
            self._unconfirmed_bytes -= self._costs.popleft()
        self._next_confirm = next_confirm
        while self._written and self._written[0].last_id < next_confirm:
            self._written.popleft().done(None)
        if self._queue and self._error is None:
            self._write_what_fits()

    # Reading

    async def read(self, from_offset: int) -> _Cursor:
        async with contextlib.AsyncExitStack() as unless_read:
            cursor = await self._subscribe(schema.OffsetSpecOffset(OffsetType.OFFSET, from_offset))
            unless_read.push_async_callback(cursor.close)
            cursor.skip_below = from_offset
            # The broker sends a subscription's first chunk before it answers anything later. If
            # none came, the log ends before `from_offset`, and the broker has moved us silently
            # to its end: begin at the last chunk instead, so that the caller sees where it ends.
            if from_offset and not await self._has_chunk(cursor):
                await cursor.close()
                cursor = await self._subscribe(schema.OffsetSpec(OffsetType.LAST))
            unless_read.pop_all()
        return cursor

    async def end(self) -> int | None:
        while True:
            chunk = await self._one_chunk(OffsetType.LAST)
            if chunk is not None:
                return chunk.end - 1
            # In a cluster the last chunk may not be readable yet while earlier ones are.
            if await self._one_chunk(OffsetType.FIRST) is None:
                return None
            await asyncio.sleep(0.01)

    async def first(self) -> int | None:
        chunk = await self._one_chunk(OffsetType.FIRST)
        return None if chunk is None else chunk.first

    async def _one_chunk(self, where: OffsetType) -> Chunk | None:
        cursor = await self._subscribe(schema.OffsetSpec(where))
        await cursor.close()  # its answer comes after the chunk, if there is one
        return cursor.chunks[0] if cursor.chunks else None

    async def _has_chunk(self, cursor: _Cursor) -> bool:
        if not cursor.chunks:
            await self._exists()
        return bool(cursor.chunks)

    async def _subscribe(self, where: schema.OffsetSpec) -> _Cursor:
        self._raise_if_gone()
        if len(self._cursors) >= _SUBSCRIPTIONS:
            raise LogRefused(f"{_SUBSCRIPTIONS} readers on one connection are the most")
        while self._subscription_seed in self._cursors:
            self._subscription_seed = (self._subscription_seed + 1) % _SUBSCRIPTIONS
        number = self._subscription_seed
        self._subscription_seed = (number + 1) % _SUBSCRIPTIONS
        cursor = _Cursor(self, number)
        self._cursors[number] = cursor
        async with contextlib.AsyncExitStack() as unless_subscribed:
            # When cancelled or refused; in the first case the broker may know it, so the number
            # stays taken until the broker has said that it is gone.
            unless_subscribed.push_async_callback(cursor.close)
            await self._ask(
                self._connection.subscribe(self._stream, number, where, initial_credit=1)
            )
            unless_subscribed.pop_all()
        return cursor

    def on_chunk(self, chunk: Chunk) -> None:
        cursor = self._cursors.get(chunk.subscription)
        if cursor is not None:  # else: was under way when the reader stopped
            cursor.arrived(chunk)

    def credit(self, cursor: _Cursor, held: int, wanted: int) -> int:
        """Let the broker send `cursor` up to `wanted` chunks in all; how many more it now may."""
        free = _EXTRA_CHUNKS - self._extra_chunks
        more = min(wanted - held, (1 if held == 0 else 0) + free)
        if more <= 0 or self._error is not None:
            return 0
        self._extra_chunks += more - (1 if held == 0 else 0)
        self._connection.write(encode_frame(schema.Credit(cursor.number, more)))
        return more

    def give_back(self, extra_chunks: int) -> None:
        self._extra_chunks -= extra_chunks

    async def unsubscribe(self, cursor: _Cursor) -> None:
        try:
            if self._error is None:
                await self._ask(self._connection.unsubscribe(cursor.number))
        except (LogClosed, LogMissing, LogRefused):
            # The connection ended, or the broker never knew it: either way nothing is left of it.
            logger.debug("subscription %d was gone already", cursor.number)
        finally:
            self._cursors.pop(cursor.number, None)

    # The mark

    async def store_mark(self, offset: int) -> None:
        self._raise_if_gone()
        await self._ask(self._connection.store_offset(self._stream, self._mark_name, offset))
        # StoreOffset has no answer, and without the right to write it does nothing.
        limit = self._loop.time() + _MARK_DEADLINE_S
        while await self.load_mark() != offset:
            if self._loop.time() > limit:
                raise LogRefused(f"the broker does not store the mark {self._mark_name!r}")
            await asyncio.sleep(0.02)

    async def load_mark(self) -> int | None:
        self._raise_if_gone()
        try:
            return await self._ask(self._connection.query_offset(self._stream, self._mark_name))
        except _NoOffset:
            return None

    # The connection's life

    async def close(self) -> None:
        if self._error is None:
            try:
                async with asyncio.timeout(_GOODBYE_S):
                    await self._connection.goodbye()
            except (
                TimeoutError,
                exceptions.ServerError,
                OSError,
                ConnectionClosedError,
            ) as error:
                logger.debug("no goodbye from the broker: %r", error)
            self.fail(LogClosed("closed by this node"))
        await self._connection.ended()

    def fail(self, error: SiteLogError) -> None:
        """End this connection, once; everything in flight ends with `error`."""
        if self._error is not None:
            return
        self._error = error
        self._watchdog.cancel()
        self._connection.abort(str(error))
        self._closed.set_result(str(error))
        for submission in (*self._written, *self._queue):
            submission.done(self._gone())
        self._written.clear()
        self._queue.clear()
        for cursor in self._cursors.values():
            cursor.wake()
        if self._inquiry is not None:
            self._inquiry.cancel()

    def gone(self) -> SiteLogError | None:
        """The error to raise if the connection has ended."""
        return None if self._error is None else self._gone()

    def on_metadata_update(self) -> None:
        """The stream was deleted, or its leader moved: find out which, then end."""
        if self._inquiry is None and self._error is None:
            self._inquiry = self._loop.create_task(self._find_out())

    async def _find_out(self) -> None:
        try:
            exists = await self._exists()
        except SiteLogError as error:
            self.fail(error)
        else:
            if exists:
                self.fail(LogClosed(f"stream {self._stream!r} moved or is not available now"))
            else:
                self.fail(LogMissing(f"stream {self._stream!r} was deleted"))

    async def _exists(self) -> bool:
        return await self._ask(self._connection.stream_exists(self._stream))

    def _watch(self) -> None:
        # By checks and not by the clock: a node that was itself stopped for a minute must first
        # get the chance to read what has come meanwhile.
        heard = self._connection.reads
        self._silent_checks = self._silent_checks + 1 if heard == self._heard_at_check else 0
        self._heard_at_check = heard
        if self._silent_checks >= 4:
            self.fail(LogClosed(f"nothing heard for {4 * self._watch_every_s:g} s"))
        else:
            self._watchdog = self._loop.call_later(self._watch_every_s, self._watch)

    async def _ask(self, request: Coroutine[Any, Any, T]) -> T:
        if self._error is not None:
            request.close()
            raise self._gone()
        try:
            return await request
        except exceptions.ServerError as error:
            translated = _translate(error, self._stream)
            if isinstance(translated, LogClosed):
                self.fail(translated)
            raise translated from error
        except TimeoutError as error:
            self.fail(LogClosed("the broker did not answer a request in time"))
            raise self._gone() from error
        except (OSError, ConnectionClosedError) as error:
            self.fail(LogClosed(f"connection lost: {error}"))
            raise self._gone() from error

    def _raise_if_gone(self) -> None:
        if self._error is not None:
            raise self._gone()

    def _gone(self) -> SiteLogError:
        assert self._error is not None
        return type(self._error)(str(self._error))


class _Cursor:
    """LogCursor over one subscription; `chunks` is what came and was not taken yet."""

    def __init__(self, log: RabbitLog, number: int) -> None:
        self._log = log
        self.number = number
        self.chunks: deque[Chunk] = deque()
        self.skip_below = 0
        self._under_way = 1  # the credit of the subscription itself
        self._waiter: asyncio.Future[None] | None = None
        self._stopped = False
        self._closed = False

    async def next(self, ahead: int = 1) -> list[Record]:
        while True:
            while self.chunks:
                chunk = self.chunks.popleft()
                held = self._under_way + len(self.chunks)
                if held:
                    self._log.give_back(1)
                if held <= ahead // 2 - 1:  # in halves, not a frame a chunk
                    self._under_way += self._log.credit(self, held, ahead)
                records = chunk.records
                if chunk.first < self.skip_below:
                    records = [r for r in records if r.offset >= self.skip_below]
                if records:
                    return records
            if (error := self._log.gone()) is not None:
                raise error
            if self._stopped:
                raise LogClosed("this reader was closed")
            self._under_way += self._log.credit(self, self._under_way, ahead)
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def stop(self) -> None:
        self._stopped = True
        self.wake()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.stop()
        await asyncio.shield(self._log.unsubscribe(self))
        self._log.give_back(max(0, self._under_way + len(self.chunks) - 1))
        self._under_way = 0

    def arrived(self, chunk: Chunk) -> None:
        self._under_way -= 1
        self.chunks.append(chunk)
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class ConnectionClosedError(Exception):
    """The socket is gone while a request waited for its answer."""


class _NoOffset(LogRefused):
    """The broker's exact "no offset": nothing was ever stored."""


class _Connection(Client):
    """rstream's client with a listener of our own."""

    def __init__(self, address: StreamAddress, heartbeat_s: int, name: str) -> None:
        super().__init__(
            address.host,
            address.port,
            ssl_context=address.ssl_context,
            frame_max=_FRAME_MAX,
            heartbeat=heartbeat_s,
            connection_name=name,
            # Not called by our listener; that there is one keeps rstream from logging
            # tracebacks of what we handle.
            connection_closed_handler=lambda _: None,
        )
        self.reads = 0
        self._log: RabbitLog | None = None
        self._end_reason = ""

    def attach(self, log: RabbitLog) -> None:
        self._log = log
        if self._end_reason:
            log.fail(LogClosed(self._end_reason))

    @property
    def heartbeat_s(self) -> int:
        """What was agreed with the broker; 0: none."""
        return self._heartbeat

    @property
    def advertised(self) -> tuple[str, int]:
        """The address by which the broker calls itself."""
        properties = self.server_properties or {}
        return (
            properties.get("advertised_host", self.host),
            int(properties.get("advertised_port", self.port)),
        )

    def write(self, frame: bytes) -> None:
        """Hand over to the socket; what is lost with it is told by `closed`."""
        if self._is_writable():
            assert self._conn is not None
            assert self._conn._writer is not None
            self._conn._writer.write(frame)

    async def send_frame(self, frame: schema.Frame, version: int = 1) -> None:
        if not self._is_writable():
            raise ConnectionClosedError("the socket is gone")
        await super().send_frame(frame, version)

    def _is_writable(self) -> bool:
        """uvloop's transport raises RuntimeError once it is gone, before we are told that it is."""
        conn = self._conn
        return (
            conn is not None
            and conn._writer is not None
            and not conn._writer.transport.is_closing()
        )

    async def goodbye(self) -> None:
        await self.sync_request(
            schema.Close(self._corr_id_seq.next(), code=1, reason="OK"),
            resp_schema=schema.CloseResponse,
        )

    def abort(self, reason: str) -> None:
        """Drop the connection now: no goodbye, no waiting."""
        self._is_not_closed = False
        for waiter in list(self._waiters.values()):
            if not waiter.done():
                waiter.set_exception(ConnectionClosedError(reason))
                waiter.exception()  # told to whoever waits; nobody waiting is no fault
        for task in self._tasks.values():
            if task is not asyncio.current_task():
                task.cancel()
        if self._conn is not None and self._conn._writer is not None:
            self._conn._writer.transport.abort()

    async def ended(self) -> None:
        """Wait until the connection's tasks are gone."""
        tasks = [t for t in self._tasks.values() if t is not asyncio.current_task()]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _listener(self) -> None:
        try:
            await self._read_frames()
            reason = "the broker closed the connection"
        except (OSError, _ServerClosed) as error:
            reason = f"connection lost: {error}"
        except Exception as error:
            logger.exception("stream connection to %s:%s out of step", self.host, self.port)
            reason = f"out of step with the broker: {error!r}"
        self._end_reason = reason
        if self._log is not None:
            self._log.fail(LogClosed(reason))
        else:
            self.abort(reason)

    async def _read_frames(self) -> None:
        assert self._conn is not None
        assert self._conn._reader is not None
        reader = self._conn._reader
        buffer = bytearray()
        while data := await reader.read(_READ_BYTES):
            self.reads += 1
            buffer += data
            at = 0
            with memoryview(buffer) as view:
                while len(buffer) - at >= 4:
                    end = at + 4 + int.from_bytes(buffer[at : at + 4], "big")
                    if end > len(buffer):
                        break
                    with view[at:end] as frame:
                        self._handle(frame)
                    at = end
            if at:
                del buffer[:at]

    def _handle(self, frame: memoryview) -> None:
        _, key, version = stream_frames.FRAME_HEADER.unpack_from(frame)
        if key == stream_frames.KEY_PUBLISH_CONFIRM and version == 1 and self._log is not None:
            self._log.on_confirm(stream_frames.confirmed_ids(frame[8:]))
        elif key == stream_frames.KEY_DELIVER and version == 1 and self._log is not None:
            with frame[8:] as body:
                self._log.on_chunk(stream_frames.read_deliver(body))
        else:
            self._handle_rare(decode_frame(bytes(frame[4:])))

    def _handle_rare(self, frame: schema.Frame) -> None:
        self._last_heartbeat = asyncio.get_running_loop().time()
        waiter = self._waiters.pop((frame.key, frame.corr_id), None)
        if waiter is not None:
            if not waiter.done():
                waiter.set_result(frame)
        elif isinstance(frame, schema.Close):
            raise _ServerClosed(f"the broker says: {frame.reason}")
        elif isinstance(frame, schema.MetadataUpdate | schema.PublishError):
            if self._log is not None:
                self._log.on_metadata_update()
        elif frame.key is not Key.Heartbeat:
            logger.debug("unasked frame: %r", frame)


class _ServerClosed(Exception):
    pass


async def open_rabbit_log(
    address: StreamAddress,
    stream: str,
    *,
    mark_name: str,
    heartbeat_s: int = 10,
    name: str = "",
    deadline_s: float = 20.0,
) -> RabbitLog:
    """Connect to the stream's leader and declare the publisher.

    Silence of two heartbeats ends the connection. Raises LogClosed when there is no connection to
    be had now, LogMissing when there is no such stream, LogRefused when the broker says no.
    """
    try:
        async with asyncio.timeout(deadline_s):
            with contextlib.ExitStack() as unless_open:
                connection = await _connect_to_leader(
                    unless_open, address, stream, heartbeat_s, name
                )
                await connection.declare_publisher(stream, "", _PUBLISHER)
                unless_open.pop_all()
    except exceptions.ServerError as error:
        raise _translate(error, stream) from error
    except exceptions.LeaderNotAvailable as error:
        raise LogClosed(str(error)) from error
    except (OSError, ConnectionClosedError) as error:  # TimeoutError is an OSError
        raise LogClosed(
            f"no connection to {address.host}:{address.port}: {error or 'no answer in time'}"
        ) from error
    return RabbitLog(connection, stream, mark_name, connection.heartbeat_s)


async def _connect_to_leader(
    unless_open: contextlib.ExitStack,
    address: StreamAddress,
    stream: str,
    heartbeat_s: int,
    name: str,
) -> _Connection:
    connection = await _connect(unless_open, address, heartbeat_s, name)
    leader, _ = await connection.query_leader_and_replicas(stream)
    # By the broker's own name for itself, not by the address we came by: that may be a proxy's.
    if (leader.host, leader.port) == connection.advertised:
        return connection
    connection.abort("not the stream's leader")
    at_leader = StreamAddress(
        leader.host, leader.port, address.vhost, address.user, address.password, address.ssl_context
    )
    return await _connect(unless_open, at_leader, heartbeat_s, name)


async def _connect(
    unless_open: contextlib.ExitStack, address: StreamAddress, heartbeat_s: int, name: str
) -> _Connection:
    connection = _Connection(address, heartbeat_s, name)
    unless_open.callback(connection.abort, "could not open the log")
    await connection.start()
    await connection.authenticate(address.vhost, address.user, address.password)
    if not connection.heartbeat_s:
        raise LogRefused("the broker's stream.heartbeat is 0: its silence could not be noticed")
    return connection


def _translate(error: exceptions.ServerError, stream: str) -> SiteLogError:
    if isinstance(error, exceptions.OffsetNotFound):
        return _NoOffset(f"no offset is stored in stream {stream!r}")
    if isinstance(error, exceptions.StreamDoesNotExist):
        return LogMissing(f"there is no stream {stream!r}: `isthmus apply` makes it")
    what = f"{type(error).__name__} for stream {stream!r}"
    if isinstance(error, exceptions.StreamNotAvailable | exceptions.InternalError):
        return LogClosed(what)
    return LogRefused(what)
