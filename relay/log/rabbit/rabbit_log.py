"""A site's log as a RabbitMQ stream.

A RabbitLog is one connection (`stream_connection`), which ends once, with one reason for all that
was under way. A connection has room for a limited number of readers: a hub with hundreds of links
has more, and the rest are on a further connection that ends with the first.

Appending, its answers and the connection itself are files of their own. The rest, long as it is, is
the two sides of the log's interface, log and reader: both end by the one reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from federation.brokers.address_ring import AddressRing
from federation.brokers.addresses import StreamAddress
from federation.brokers.endpoint import Endpoint
from relay import ticks
from relay.log.rabbit.leader_connection import open_connection
from relay.log.rabbit.stream_appends import StreamAppends
from relay.log.rabbit.stream_connection import (
    PUBLISHER,
    NoOffset,
    StreamConnection,
    StreamEdge,
    answer_or_cancelled,
    log_errors,
)
from relay.log.rabbit.stream_frames import Chunk
from relay.log.site_log import (
    UNCONFIRMED_S,
    LogClosed,
    LogMissing,
    LogRefused,
    Record,
    SiteLogError,
    append_by,
)

logger = logging.getLogger(__name__)
T = TypeVar("T")

_SUBSCRIPTIONS = 256
"""Most subscriptions: a subscription's number is a byte."""
READERS = 192
"""Most subscriptions of readers; the others are for questions, which wait for each other."""
_EXTRA_CHUNKS = 8
"""Chunks that all cursors together may have under way beyond one for each cursor."""
_AHEAD_BYTES = 2 * 1024 * 1024
"""Most bytes of chunks that a cursor asks for at once. A chunk has some kilobytes in a quiet log,
and 4 MiB in a log of big messages: after a big chunk a cursor asks for fewer."""
_MARK_DEADLINE_S = 5.0
_DELETION_S = 1.0
"""Time to find out from the broker if a stream without a leader is deleted, or just moved."""
_GOODBYE_S = 1.0


class RabbitLog:
    """SiteLog over a stream connection. Made by `open_rabbit_log`."""

    def __init__(
        self,
        connection: StreamConnection,
        stream: str,
        mark_name: str,
        open_further: Callable[[], Awaitable[RabbitLog]],
        *,
        is_replicated: bool = False,
    ) -> None:
        self.is_replicated = is_replicated
        self._connection = connection
        self._stream = stream
        self._mark_name = mark_name
        self._loop = asyncio.get_running_loop()
        self._closed: asyncio.Future[str] = self._loop.create_future()
        self._error: SiteLogError | None = None
        self._appends = StreamAppends(PUBLISHER, connection.frame_bytes, connection.write)
        self._cursors: dict[int, _Cursor] = {}
        self._subscription_seed = 0
        self._readers = 0
        self._questions = asyncio.Semaphore(_SUBSCRIPTIONS - READERS)
        self._open_further = open_further
        self._further: asyncio.Task[RabbitLog] | None = None
        self._extra_chunks = 0
        self._inquiry: asyncio.Task[None] | None = None
        self._silent_checks = 0
        self._heard_at_check = -1
        self._watch_every_s = connection.heartbeat_s / 2
        self._watchdog = self._loop.call_later(
            ticks.about(self._watch_every_s, self._loop.time()), self._watch
        )
        connection.attach(self)

    @property
    def closed(self) -> asyncio.Future[str]:
        return self._closed

    @property
    def max_record_bytes(self) -> int:
        return self._appends.max_record_bytes

    # Appending

    def submit(self, records: Sequence[bytes], done: Callable[[SiteLogError | None], None]) -> None:
        if self._error is not None:
            self._loop.call_soon(done, self._gone())
        else:
            self._appends.submit(records, done)

    async def append(self, records: Sequence[bytes]) -> None:
        await append_by(self.submit, records)

    def on_confirm(self, ids: Sequence[int]) -> None:
        self._appends.on_confirm(ids)

    # Reading

    async def read(
        self, from_offset: int, *, hurried: bool = False, heads: bool = False
    ) -> _Cursor:
        if self._readers >= READERS:
            return await (await self._further_log()).read(from_offset, hurried=hurried)
        async with contextlib.AsyncExitStack() as unless_read:
            cursor = await self._subscribe(from_offset, reads=True)
            unless_read.push_async_callback(cursor.close)
            cursor.skip_below = from_offset
            # The broker sends a subscription's first chunk before it answers anything later. If
            # none came, the log ends before `from_offset`, and the broker has moved us silently
            # to its end: begin at the last chunk instead, so that the caller sees where it ends.
            if from_offset and not await self._has_chunk(cursor):
                await cursor.close()
                if self._readers >= READERS:
                    return await (await self._further_log()).read(from_offset, hurried=hurried)
                cursor = await self._subscribe(StreamEdge.LAST, reads=True)
            unless_read.pop_all()
        cursor.hurried = hurried
        return cursor

    async def end(self) -> int | None:
        limit = self._loop.time() + UNCONFIRMED_S
        while self._loop.time() < limit:
            chunk = await self._one_chunk(StreamEdge.LAST)
            if chunk is not None:
                return chunk.end - 1
            # In a cluster the last chunk may not be readable yet while earlier ones are.
            if await self._one_chunk(StreamEdge.FIRST) is None:
                return None
            await asyncio.sleep(0.01)
        raise LogClosed(f"the log's last chunk was not confirmed for {UNCONFIRMED_S:g} s")

    async def first(self) -> int | None:
        chunk = await self._one_chunk(StreamEdge.FIRST)
        return None if chunk is None else chunk.first

    async def _one_chunk(self, where: StreamEdge) -> Chunk | None:
        async with self._questions:
            cursor = await self._subscribe(where, reads=False)
            await cursor.close()  # its answer comes after the chunk, if there is one
        return cursor.chunks[0] if cursor.chunks else None

    async def _has_chunk(self, cursor: _Cursor) -> bool:
        if not cursor.chunks:
            await self._exists()
        return bool(cursor.chunks)

    async def _subscribe(self, where: int | StreamEdge, *, reads: bool) -> _Cursor:
        self._raise_if_gone()
        while self._subscription_seed in self._cursors:
            self._subscription_seed = (self._subscription_seed + 1) % _SUBSCRIPTIONS
        number = self._subscription_seed
        self._subscription_seed = (number + 1) % _SUBSCRIPTIONS
        cursor = _Cursor(self, number, reads=reads)
        self._readers += reads
        self._cursors[number] = cursor
        async with contextlib.AsyncExitStack() as unless_subscribed:
            # When cancelled or refused. If cancelled, the broker may know the subscription, whose
            # number stays taken until the broker has confirmed its end.
            unless_subscribed.push_async_callback(cursor.close)
            await self._ask(self._connection.subscribe_at(self._stream, number, where))
            unless_subscribed.pop_all()
        return cursor

    def on_chunk(self, chunk: Chunk) -> None:
        cursor = self._cursors.get(chunk.subscription)
        if cursor is not None:  # else: was under way when the reader stopped
            cursor.arrived(chunk)

    def credit(self, cursor: _Cursor, held: int, wanted: int) -> int:
        """Let the broker send `cursor` up to `wanted` chunks in all; return the number added."""
        free = wanted if cursor.hurried else _EXTRA_CHUNKS - self._extra_chunks
        more = min(wanted - held, (1 if held == 0 else 0) + free)
        if more <= 0 or self._error is not None:
            return 0
        if not cursor.hurried:
            self._extra_chunks += more - (1 if held == 0 else 0)
        self._connection.give_credit(cursor.number, more)
        return more

    def give_back(self, extra_chunks: int) -> None:
        self._extra_chunks -= extra_chunks

    async def unsubscribe(self, cursor: _Cursor) -> None:
        try:
            if self._error is None:
                await self._ask(self._connection.unsubscribe(cursor.number))
        except (LogClosed, LogMissing, LogRefused):
            # The connection ended, or the broker never knew the subscription: nothing is left.
            logger.debug("subscription %d was gone already", cursor.number)
        finally:
            del self._cursors[cursor.number]
            self._readers -= cursor.reads

    async def _further_log(self) -> RabbitLog:
        """Open another connection, once, for readers without room here."""
        self._raise_if_gone()
        if self._further is None:
            self._further = self._loop.create_task(self._connect_further())
        await asyncio.wait({self._further})  # cancelling one reader must not end the task
        return self._further.result()

    def _has_further(self) -> RabbitLog | None:
        further = self._further
        if further is None or not further.done() or further.exception() is not None:
            return None
        return further.result()

    async def _connect_further(self) -> RabbitLog:
        try:
            further = await self._open_further()
        except SiteLogError as error:
            self.fail(error)
            raise self._gone() from error
        if self._error is not None:
            await further.close()
            raise self._gone()

        def ended(_: asyncio.Future[str]) -> None:
            self.fail(further.gone() or LogClosed("a further connection ended"))

        further.closed.add_done_callback(ended)
        return further

    # The mark

    async def store_mark(self, offset: int) -> None:
        self._raise_if_gone()
        await self._ask(self._connection.store_offset(self._stream, self._mark_name, offset))
        # StoreOffset has no answer, and without the right to write no effect.
        limit = self._loop.time() + _MARK_DEADLINE_S
        while await self.load_mark() != offset:
            if self._loop.time() > limit:
                raise LogRefused(f"the broker does not store the mark {self._mark_name!r}")
            await asyncio.sleep(0.02)

    async def load_mark(self) -> int | None:
        self._raise_if_gone()
        try:
            return await self._ask(self._connection.query_offset(self._stream, self._mark_name))
        except NoOffset:
            return None

    # The connection's life

    async def close(self) -> None:
        if self._error is None:
            try:
                with log_errors(self._stream):
                    async with asyncio.timeout(_GOODBYE_S):
                        await self._connection.goodbye()
            except SiteLogError as error:
                logger.debug("no goodbye from the broker: %r", error)
            self.fail(LogClosed("closed by this node"))
        await self._connection.ended()
        if self._further is not None:
            await asyncio.wait({self._further})
        if (further := self._has_further()) is not None:
            await further.close()

    def fail(self, error: SiteLogError) -> None:
        """End this connection, once; everything in flight ends with `error`."""
        if self._error is not None:
            return
        self._error = error
        self._watchdog.cancel()
        self._connection.abort(str(error))
        self._closed.set_result(str(error))
        self._appends.fail(self._gone)
        for cursor in self._cursors.values():
            cursor.wake()
        if self._inquiry is not None:
            self._inquiry.cancel()
        if (further := self._has_further()) is not None:
            further.fail(error)

    def gone(self) -> SiteLogError | None:
        """The error to raise if the connection has ended."""
        return None if self._error is None else self._gone()

    def on_metadata_update(self) -> None:
        """Find out if the stream was deleted or its leader moved, then end."""
        if self._inquiry is None and self._error is None:
            self._inquiry = self._loop.create_task(self._find_out())

    async def _find_out(self) -> None:
        try:
            exists = await self._exists()
            # A stream that is being deleted is known for some ms after its leader has ended (seen
            # with RabbitMQ 4). No leader means no appends either: nothing is lost by asking again.
            limit = self._loop.time() + _DELETION_S
            while exists and self._loop.time() < limit:
                await asyncio.sleep(0.05)
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
        # By checks and not by the clock: a node that was itself stopped for a minute must first get
        # the chance to read what the broker sent meanwhile.
        heard = self._connection.reads
        self._silent_checks = self._silent_checks + 1 if heard == self._heard_at_check else 0
        self._heard_at_check = heard
        if self._silent_checks >= 4:
            self.fail(LogClosed(f"nothing heard for {4 * self._watch_every_s:g} s"))
        else:
            self._watchdog = self._loop.call_later(
                ticks.about(self._watch_every_s, self._loop.time()), self._watch
            )

    async def _ask(self, request: Coroutine[Any, Any, T]) -> T:
        if self._error is not None:
            request.close()
            raise self._gone()
        try:
            with log_errors(self._stream):
                return await answer_or_cancelled(request)
        except LogClosed as error:
            self.fail(error)
            raise self._gone() from error  # `fail` keeps an earlier, truer reason

    def _raise_if_gone(self) -> None:
        if self._error is not None:
            raise self._gone()

    def _gone(self) -> SiteLogError:
        assert self._error is not None
        return type(self._error)(str(self._error))


class _Cursor:
    """LogCursor over a subscription; `chunks` are those that came and were not taken yet."""

    def __init__(self, log: RabbitLog, number: int, *, reads: bool) -> None:
        self._log = log
        self.reads = reads
        self.number = number
        self.chunks: deque[Chunk] = deque()
        self.skip_below = 0
        self.hurried = False
        """True for a cursor with as many chunks under way as requested; other cursors share an
        allowance."""
        self._under_way = 1  # the credit of the subscription itself
        self._chunk_bytes = 1
        self._waiter: asyncio.Future[None] | None = None
        self._stopped = False
        self._closed = False

    async def next(self, ahead: int = 1) -> list[Record]:
        while True:
            while self.chunks:
                chunk = self.chunks.popleft()
                self._chunk_bytes = max(1, chunk.size)
                held = self._under_way + len(self.chunks)
                if held and not self.hurried:
                    self._log.give_back(1)
                wanted = self._affordable(ahead)
                if held <= wanted // 2 - 1:  # half the credit at once, not a frame for each chunk
                    self._under_way += self._log.credit(self, held, wanted)
                records = chunk.records
                if chunk.first < self.skip_below:
                    records = [r for r in records if r.offset >= self.skip_below]
                if records:
                    return records
            if (error := self._log.gone()) is not None:
                raise error
            if self._stopped:
                raise LogClosed("this reader was closed")
            wanted = self._affordable(ahead)
            self._under_way += self._log.credit(self, self._under_way, wanted)
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def _affordable(self, ahead: int) -> int:
        return min(ahead, max(1, _AHEAD_BYTES // self._chunk_bytes))

    def stop(self) -> None:
        self._stopped = True
        self.wake()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.stop()
        try:
            await asyncio.shield(self._log.unsubscribe(self))
        finally:
            if not self.hurried:
                self._log.give_back(max(0, self._under_way + len(self.chunks) - 1))
            self._under_way = 0

    def arrived(self, chunk: Chunk) -> None:
        self._under_way -= 1
        self.chunks.append(chunk)
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def open_rabbit_log(
    address: StreamAddress,
    stream: str,
    *,
    mark_name: str,
    heartbeat_s: int = 10,
    name: str = "",
    deadline_s: float = 20.0,
    ring: AddressRing[Endpoint] | None = None,
    is_replicated: bool = False,
) -> RabbitLog:
    """Connect to the stream's leader and declare the publisher. `ring` has the order in which a
    cluster's nodes are asked for the leader; `is_replicated` as of SiteLog.

    Silence of two heartbeats ends the connection. Raises LogClosed when no connection can be made
    now, LogMissing when there is no such stream, LogRefused when the broker refuses.
    """
    connection = await open_connection(
        address, stream, heartbeat_s=heartbeat_s, name=name, deadline_s=deadline_s, ring=ring
    )
    open_further = partial(
        open_rabbit_log,
        address,
        stream,
        mark_name=mark_name,
        heartbeat_s=heartbeat_s,
        name=name,
        deadline_s=deadline_s,
        is_replicated=is_replicated,
    )
    return RabbitLog(connection, stream, mark_name, open_further, is_replicated=is_replicated)
