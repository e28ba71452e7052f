"""A log in memory with its writer, in virtual time, and what a test wants to do to both."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from relay.batches.batch import BatchHeader, BatchKind, BatchName, LoggedBatch, Place
from relay.batches.format import read_header
from relay.batches.known_formats import KNOWN, Formats
from relay.content.content_log import ContentLog
from relay.content.contents import Contents
from relay.content.reference import ContentReference
from relay.log.knowledge import UnknownRecord
from relay.log.memory_log import MemoryStream
from relay.log.reader import LogReader
from relay.log.run import Appended, LogEvents, LogRun, LogSettings, LogState
from relay.log.site_log import LogClosed, SiteLog
from relay.log.writer import LogWriter
from relay.tracing.batch_trace import BatchTrace
from tests.log_batches import INCARNATION, batch
from tests.virtual_time import in_virtual_time
from tests.waiting import until

ORIGIN = "paris"


@dataclass
class KeptSnapshot:
    """LogMemory that lives as long as the test."""

    data: bytes | None = None
    saves: int = 0

    def load(self) -> bytes | None:
        return self.data

    def save(self, snapshot: bytes) -> None:
        self.data = snapshot
        self.saves += 1

    async def synced(self) -> None:
        await asyncio.sleep(0)


@dataclass
class LogWorld:
    """One site's log. `writer()` is one life of its node."""

    stream: MemoryStream = field(default_factory=lambda: MemoryStream(confirm_s=0.001))
    memory: KeptSnapshot = field(default_factory=KeptSnapshot)
    settings: LogSettings = field(default_factory=LogSettings)
    bad_records: list[tuple[int, bytes, str]] = field(default_factory=list)
    superseded: list[BatchHeader] = field(default_factory=list)
    states: list[LogState] = field(default_factory=list)
    random_count: int = 0
    formats: Formats = KNOWN
    unknown: list[UnknownRecord] = field(default_factory=list)
    origin: str = ORIGIN
    trace: BatchTrace | None = None
    contents: Contents | None = None

    def random_bytes(self, count: int) -> bytes:
        self.random_count += 1
        return self.random_count.to_bytes(count, "big")

    def make_writer(self) -> LogWriter:
        return LogWriter(
            self.open_log,
            self.memory,
            LogEvents(
                on_bad_record=lambda *bad: self.bad_records.append(bad),
                on_superseded=self.superseded.append,
                on_state=lambda state, _: self.states.append(state),
                on_unknown=self.unknown.append,
                trace=self.trace,
            ),
            origin=self.origin,
            formats=self.formats,
            settings=self.settings,
            random_bytes=self.random_bytes,
            jitter=lambda: 0.5,
        )

    async def open_log(self) -> SiteLog:
        opened = await self.stream.open()
        return opened if self.contents is None else ContentLog(opened, self.contents)

    @asynccontextmanager
    async def writer(self) -> AsyncIterator[LogWriter]:
        """A node's life, ended in good order."""
        writer = self.make_writer()
        living = asyncio.ensure_future(writer.run_forever())
        await writer.running()
        try:
            yield writer
        finally:
            await writer.close()
            await living

    @asynccontextmanager
    async def killed_writer(self) -> AsyncIterator[LogWriter]:
        """A node's life, ended by SIGKILL: the last snapshot is the last one made in time."""
        writer = self.make_writer()
        living = asyncio.ensure_future(writer.run_forever())
        await writer.running()
        kept = KeptSnapshot()
        try:
            yield writer
        finally:
            kept.data = self.memory.data
            living.cancel()
            await asyncio.wait([living])
            self.memory.data = kept.data

    @property
    def stored(self) -> list[int]:
        """Sequences of the batches that the log has, in its order."""
        return [header.name.sequence for header in self.headers]

    @property
    def headers(self) -> list[BatchHeader]:
        """Headers of the batches that the log has, in its order."""
        return [
            read_header(r.data if (kept := ContentReference.decode(r.data)) is None else kept.head)
            for r in self.stream.records
            if r.data and not r.flaw
        ]


LogTest = Callable[[LogWorld, LogWriter], Coroutine[Any, Any, None]]


def in_one_life(**settings: Any) -> Callable[[LogTest], Callable[[], None]]:
    """Run a test in virtual time, handed a world and its writer: one life, ended in good order."""

    def of_one_life(test: LogTest) -> Callable[[], None]:
        async def live() -> None:
            world = LogWorld(settings=LogSettings(**settings))
            async with world.writer() as writer:
                await test(world, writer)

        run = functools.update_wrapper(in_virtual_time(live), test)
        del run.__wrapped__  # pytest would take the test's arguments for fixtures
        return run

    return of_one_life


async def append(writer: LogWriter, *numbers: int, **kwargs: Any) -> list[Appended]:
    """Append batches of these numbers, all at once."""
    return list(
        await asyncio.gather(
            *(writer.append_nowait(*batch(number, **kwargs)) for number in numbers)
        )
    )


async def append_through(writer: LogWriter, *numbers: int, **kwargs: Any) -> None:
    """Append one after the other, and again after a broken connection, as the stages do."""
    for number in numbers:
        while True:
            try:
                await append(writer, number, **kwargs)
                break
            except LogClosed:
                await writer.running()


async def until_checked(writer: LogWriter, number: int, **kwargs: Any) -> Place:
    """Wait until the writer has read back the batch of this number, and saved it."""
    header, _ = batch(number, **kwargs)
    await until(lambda: name_at(writer.checked) == header.name, f"{header.name} read back", 3600)
    assert writer.checked is not None
    return writer.checked


async def append_and_check(writer: LogWriter, *numbers: int, **kwargs: Any) -> Place:
    """Append batches of these numbers, and wait until the last was read back: its place."""
    await append(writer, *numbers, **kwargs)
    return await until_checked(writer, numbers[-1], **kwargs)


@asynccontextmanager
async def ending_run(writer: LogWriter) -> AsyncIterator[LogRun]:
    """What is done inside ends the present connection; goes on when the next one stands."""
    run = await writer.running()
    yield run
    await run.ended
    await writer.running()


async def log_in_a_life_before(world: LogWorld, count: int) -> bytes:
    """A node's life in which it logged so many batches and read them back: the log's ID."""
    async with world.writer() as writer:
        await append_and_check(writer, *range(count))
        return (await writer.running()).log_id


async def positions_of_a_life_before(world: LogWorld, count: int) -> list[Place | None]:
    """The same with a reader: the position to store after each batch."""
    async with world.writer() as writer:
        reader = writer.reader(None, name="before")
        await append(writer, *range(count))
        places = [b.place for b in await take_batches(reader, count)]
        await until_checked(writer, count - 1)
        return [writer.safe_position(place) for place in places]


def name_at(place: Place | None) -> BatchName | None:
    """Which batch stands there; None for the log's start."""
    return None if place is None else place.name


async def take(reader: LogReader, count: int) -> list[int]:
    """The sequences of the next `count` batches."""
    return [b.header.name.sequence for b in await take_batches(reader, count)]


async def take_batches(reader: LogReader, count: int) -> list[LoggedBatch]:
    got: list[LoggedBatch] = []
    while len(got) < count:
        got += await reader.next_batches(max_bytes=1)
    return got


def mark(number: int, incarnation: bytes = INCARNATION) -> tuple[BatchHeader, bytes]:
    """A mark of this site's packer."""
    return batch(number, kind=BatchKind.MARK, incarnation=incarnation, origin=ORIGIN)
