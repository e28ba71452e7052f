"""A site's log of which the content of large messages is in the site's content store.

Every other part of a node has to do with whole batches only: the content is put into the store
before a record is appended, and is put back as a record is read. A content that is gone leaves the
head of its batch (`BatchHead`): whoever needs the batch's messages stops there with a gap.

Records keep their order, so small ones wait behind a large one whose content is being stored.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from relay import crash_points
from relay.batches.batch import BatchHead
from relay.content.contents import ContentGone, Contents, StoringRule
from relay.content.reference import ContentReference, content_of
from relay.log.site_log import (
    LogClosed,
    LogCursor,
    LogRefused,
    Record,
    SiteLog,
    SiteLogError,
    append_by,
)

T = TypeVar("T")
_Done = Callable[[SiteLogError | None], None]


class ContentLog:
    """`SiteLog` over another, whose connection is also this one's."""

    def __init__(self, log: SiteLog, contents: Contents) -> None:
        self._log = log
        self._contents = contents
        self._waiting: deque[tuple[Sequence[bytes], _Done]] = deque()
        """Appends behind the one whose content is being stored, which is the first."""
        self._storing: asyncio.Task[None] | None = None
        log.closed.add_done_callback(self._ended)

    @property
    def closed(self) -> asyncio.Future[str]:
        return self._log.closed

    @property
    def max_record_bytes(self) -> int:
        return self._log.max_record_bytes

    @property
    def is_replicated(self) -> bool:
        return self._log.is_replicated

    def submit(self, records: Sequence[bytes], done: _Done) -> None:
        rule = self._contents.rule
        if self._log.closed.done() or not (
            self._waiting or (rule and any(content_of(r, rule.above) for r in records))
        ):
            self._log.submit(records, done)
            return
        for record in records:
            if len(record) > self.max_record_bytes:
                raise LogRefused(
                    f"a record of {len(record)} bytes, the log takes {self.max_record_bytes}"
                )
        self._waiting.append((records, done))
        if self._storing is None:
            self._storing = asyncio.create_task(self._store(), name="content: store")

    async def append(self, records: Sequence[bytes]) -> None:
        await append_by(self.submit, records)

    async def _store(self) -> None:
        """Store contents, and append what waits, one after the other."""
        try:
            while self._waiting:
                records, done = self._waiting[0]
                rule = self._contents.rule
                if rule is not None:
                    records = [await self._as_stored(record, rule) for record in records]
                self._waiting.popleft()
                self._log.submit(records, done)
        finally:
            self._storing = None

    async def _as_stored(self, record: bytes, rule: StoringRule) -> bytes:
        """Return the record as it goes into the log, with its content in the store."""
        content = content_of(record, rule.above)
        if content is None:
            return record
        content_id = await self._contents.put(content, rule.retention_s)
        crash_points.reach("content.stored")
        head = record[: len(record) - len(content)]
        return ContentReference(head, content_id, len(content)).encode()

    def _ended(self, _: asyncio.Future[str]) -> None:
        if self._storing is not None:
            self._storing.cancel()
        while self._waiting:
            self._log.submit(*self._waiting.popleft())  # which answers with the log's error

    def fail(self, error: SiteLogError) -> None:
        self._log.fail(error)

    async def read(
        self, from_offset: int, *, hurried: bool = False, heads: bool = False
    ) -> LogCursor:
        cursor = await self._log.read(from_offset, hurried=hurried, heads=heads)
        if heads:
            return _HeadCursor(cursor)
        return _WholeCursor(cursor, self._contents, self._log.closed)

    async def end(self) -> int | None:
        return await self._log.end()

    async def first(self) -> int | None:
        return await self._log.first()

    async def store_mark(self, offset: int) -> None:
        await self._log.store_mark(offset)

    async def load_mark(self) -> int | None:
        return await self._log.load_mark()

    async def close(self) -> None:
        await self._log.close()
        if self._storing is not None:
            await asyncio.wait({self._storing})


class _WholeCursor:
    """Cursor that puts contents back, one at a time: a chunk of references may stand for a
    thousand times its own bytes.
    """

    def __init__(
        self, cursor: LogCursor, contents: Contents, log_closed: asyncio.Future[str]
    ) -> None:
        self._cursor = cursor
        self._contents = contents
        self._log_closed = log_closed
        self._read: deque[Record] = deque()
        """Records that were read and not returned, the first of them a reference."""
        self._stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def next(self, ahead: int = 1) -> list[Record]:
        if not self._read:
            self._read.extend(await self._cursor.next(ahead))
        whole: list[Record] = []
        while self._read:
            reference = ContentReference.decode(self._read[0].data)
            if reference is None:
                whole.append(self._read.popleft())
            elif whole:
                break
            else:
                data = await self._unless_ended(self._put_together(reference))
                return [self._read.popleft()._replace(data=data)]
        return whole

    async def _put_together(self, reference: ContentReference) -> bytes:
        try:
            return reference.head + await self._contents.take(reference)
        except ContentGone as error:
            return BatchHead.of(reference.head, str(error))

    async def _unless_ended(self, step: Awaitable[T]) -> T:
        """Return the step's result. Raises LogClosed if the log or this reader is closed before."""
        doing = asyncio.ensure_future(step)
        ends: set[asyncio.Future[Any]] = {doing, self._log_closed, self._stopped}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                return doing.result()
        finally:
            doing.cancel()
        if self._log_closed.done():
            raise LogClosed(self._log_closed.result())
        raise LogClosed("this reader was closed")

    def stop(self) -> None:
        if not self._stopped.done():
            self._stopped.set_result(None)
        self._cursor.stop()

    async def close(self) -> None:
        self.stop()
        await self._cursor.close()


class _HeadCursor:
    """Cursor that gives the first bytes of a batch in place of a reference."""

    def __init__(self, cursor: LogCursor) -> None:
        self._cursor = cursor

    async def next(self, ahead: int = 1) -> list[Record]:
        return [_headed(record) for record in await self._cursor.next(ahead)]

    def stop(self) -> None:
        self._cursor.stop()

    async def close(self) -> None:
        await self._cursor.close()


def _headed(record: Record) -> Record:
    reference = ContentReference.decode(record.data)
    return record if reference is None else record._replace(data=reference.head)
