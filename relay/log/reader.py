"""Readers of a site's log from a place on: from memory when caught up, else from the stream.

Readers that are behind share one reading of the stream (`scans.shared_scan`).

A reader outlives connections: when one ends, the reader goes on over the next, after the place that
it gave last. Batches come in the log's order, with one exception: when the log turns out to hold a
batch that its node did not append, all readers go back to the last place checked, and give again
what follows. So a stage may get a batch twice, never miss one; and it may store a position only as
far as `LogWriter.safe_position` allows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from relay.batches.batch import BatchHead, LoggedBatch, Place
from relay.log.hot_tail import HotTail, Wish
from relay.log.scans.scan_cursor import ScanCursor
from relay.log.scans.shared_scan import LogScans
from relay.log.site_log import LogClosed, LogMissing, SiteLogError

_SEARCH_RECORDS = 20_000
"""Records to search for a place's name, which is at most some seconds of batches behind the place's
offset, a lower bound."""


class PlaceLost(SiteLogError):
    """The log does not have the batch at which a reader should begin: its tail was lost in another
    run, or the log was made anew. Begin at the start (None); the sets of names keep batches that
    are done with from being done again.
    """

    def __init__(self, place: Place) -> None:
        super().__init__(f"the log does not have {place.name}, looked for from {place.offset} on")
        self.place = place


class LogGap(PlaceLost):
    """Retention ate the place, and with it perhaps what follows: report the gap and let a person
    decide.

    `first` is the first offset that is kept.
    """

    def __init__(self, place: Place, first: int) -> None:
        super().__init__(place)
        what = f"{place.name} at {place.offset}" if place.offset >= 0 else "its start"
        self.args = (f"the log begins at {first}; {what} was eaten",)
        self.first = first

    def since(self, done: Place) -> LogGap:
        """The gap as seen by a stage that is done only up to `done`: batches read ahead are gone as
        well.
        """
        return LogGap(done, self.first) if done.offset < self.place.offset else self


class ContentGap(LogGap):
    """The content of one batch is gone, and nothing else: a stage that needs the batch stops.

    `lost` is the batch's place.
    """

    def __init__(self, batch: LoggedBatch, after: Place) -> None:
        """`after` is the place up to which the stage is done."""
        super().__init__(after, batch.place.offset + 1)
        reason = batch.data.reason if isinstance(batch.data, BatchHead) else "gone"
        self.args = (f"{batch.place.name} at {batch.place.offset}: {reason}",)
        self.lost = batch.place

    def since(self, done: Place) -> LogGap:
        return self


class LogSource(Protocol):
    """Interface of the node's log for a reader: `LogWriter` implements it."""

    @property
    def tail(self) -> HotTail: ...

    @property
    def ended(self) -> bool:
        """True once the log is closed for good: nothing will be appended any more."""
        ...

    async def scans(self) -> LogScans:
        """Scans of the log, once connected and checked. Raises LogClosed when closed for good."""
        ...

    def own_offset_of(self, place: Place) -> int | None:
        """Offset of the place's name, or None if only a lower bound, the place's, is known."""
        ...

    def forget_reader(self, reader: LogReader) -> None: ...


class LogReader:
    """A stage's way through the log. Made by `LogWriter.reader`."""

    def __init__(
        self, source: LogSource, start: Place | None, name: str, reached: Place | None = None
    ) -> None:
        self.name = name
        self._source = source
        self._reached = reached
        self._place = start
        self._hot: int | None = None
        self._cursor: ScanCursor | None = None
        self._searched: int | None = None
        self._search_first: int | None = None
        self._search_end = -1
        self._epoch = 0
        self._sent_back = 0
        self._closed = False
        self._stands = False
        """True if this version cannot read what follows: the writer, which reads everything,
        reports that and the node ends."""
        self.on_sent_back: Callable[[Place | None], None] | None = None
        """Callback, from within, when `sent_back` grows: before any position can be asked for
        again."""
        self.wish: Wish | None = None
        """Batches that come at once, others may come later; None: every batch comes at once."""

    @property
    def place(self) -> Place | None:
        """Place of the batch given last, or the start; None: the log's start."""
        return self._place

    @property
    def sent_back(self) -> int:
        """Number of times that the reader was sent to another place than it had come to: the
        batches that it gives next may include, before known ones, some that were never given.
        """
        return self._sent_back

    @property
    def is_hot(self) -> bool:
        """True if the reader has caught up, and reads from memory."""
        return self._hot is not None

    async def next_batches(self, max_bytes: int = 1 << 20) -> list[LoggedBatch]:
        """The batches that follow, at least one, up to about `max_bytes`; waits for new ones.

        Cancelling loses nothing. Raises LogGap if retention has eaten batches that it should give,
        or may have; PlaceLost if the start is not there (both until `rewind`); LogClosed once the
        writer or this reader is closed for good.
        """
        while True:
            if self._closed:
                raise LogClosed("this reader was closed")
            tail = self._source.tail
            if self._stands:
                if self._source.ended:
                    raise LogClosed("the log was closed")
                await tail.changed(None)
                continue
            if batches := self.at_hand(max_bytes):
                return batches
            if self._hot is not None:
                if self._source.ended:
                    raise LogClosed("the log was closed")
                await tail.changed(self.wish)
                continue
            try:
                if batches := await self._read_stream(max_bytes):
                    return batches
            except (LogClosed, LogMissing):
                # Not the end: the writer connects again, and waits for a missing log.
                await self._source.scans()

    def at_hand(self, max_bytes: int = 1 << 20) -> list[LoggedBatch]:
        """Batches as from `next_batches` if they come without waiting and without the stream, else
        none.
        """
        if self._closed or self._stands:
            return []
        tail = self._source.tail
        if self._hot is None and self._looks_for_memory:
            self._go_hot(tail.number_after(self._place.name if self._place else None))
        if self._hot is None:
            return []
        batches = tail.take(self._hot, max_bytes)
        if batches is None:
            self._hot = None
            return []
        if batches:
            self._hot += len(batches)
            self._place = batches[-1].place
        return batches

    def news(self) -> asyncio.Future[None] | None:
        """Future of something at hand, or another reason to look again; None: call `next_batches`.
        Cancel the future to stop waiting.
        """
        if self._hot is None or self._closed or self._source.ended:
            return None
        tail = self._source.tail
        return tail.changed(self.wish) if tail.is_end(self._hot) else None

    def rewind(self, place: Place | None) -> None:
        """Go to `place` (None: to the log's start): the batches after it come next."""
        self._epoch += 1
        here = self._place.name if self._place else None
        if here != (place.name if place else None):
            self._sent_back += 1
            if self.on_sent_back is not None:
                self.on_sent_back(place)
        self._place = place
        self._hot = None
        self._stands = False
        self._drop_cursor()
        # A waiting `next_batches` looks again.
        self._source.tail.wake()

    async def close(self) -> None:
        """Stop; idempotent."""
        self._closed = True
        self._drop_cursor()
        self._source.forget_reader(self)
        self._source.tail.wake()

    @property
    def _looks_for_memory(self) -> bool:
        """True if the stream has nothing to give without waiting."""
        return self._cursor is None or (self._searched is None and not self._cursor.has_more)

    async def _read_stream(self, max_bytes: int) -> list[LoggedBatch]:
        epoch = self._epoch
        if self._cursor is None:
            try:
                cursor = await self._open_cursor()
            except SiteLogError:
                if epoch != self._epoch:
                    return []  # the error is about the place before `rewind`
                raise
            if epoch != self._epoch or self._closed:
                cursor.leave()
                return []
            self._cursor = cursor
        cursor = self._cursor
        try:
            await cursor.more()
        except SiteLogError:
            if epoch != self._epoch or self._closed:
                return []  # rewound or closed meanwhile, which ends the cursor
            self._drop_cursor()
            raise
        if epoch != self._epoch or self._closed:
            return []
        self._pass_eaten(cursor)
        if self._searched is not None:
            self._search(cursor)
            return []
        batches = cursor.take(max_bytes)
        if batches:
            self._place = batches[-1].place
            self._go_hot(self._source.tail.number_after(self._place.name))
        if self._hot is None and cursor.stands:
            self._stand()
        return batches

    async def _open_cursor(self) -> ScanCursor:
        scans = await self._source.scans()
        place = self._place
        if place is None:
            self._searched = None
            if self._reached is not None:
                first = await scans.first()
                if first is not None and first > self._reached.offset + 1:
                    raise LogGap(self._reached, first)
            return scans.cursor(0)
        own = self._source.own_offset_of(place)
        offset = place.offset if own is None else own
        first, end = await scans.first(), await scans.end()
        self._search_first = first
        self._search_end = -1 if end is None else end
        if end is None or end < offset:
            raise PlaceLost(place)
        if own is not None and first is not None and own < first:
            # A copy of the name further on is not the place: what stands before was never given.
            done = self._reached or place
            self._pass_place(done if done.offset > own else Place(own, place.name), first)
            return scans.cursor(0)
        self._searched = 0
        return scans.cursor(offset)

    def _pass_eaten(self, cursor: ScanCursor) -> None:
        """Pass over eaten batches if they were done with: retention may have overtaken this reader
        since its cursor was opened. Raises LogGap.
        """
        first, done = cursor.eaten_to, self._reached or self._place
        if first is None:
            return
        if self._searched is not None:
            self._search_first = first  # the reason if the search fails
        elif done is not None:
            done_to = cursor.offset if self._place is not None else 0
            if self._reached is not None:
                done_to = max(done_to, self._reached.offset + 1)
            if first > done_to:
                self._drop_cursor()
                raise LogGap(self._place or done, first)
        cursor.pass_eaten()

    def _search(self, cursor: ScanCursor) -> None:
        assert self._searched is not None
        assert self._place is not None
        name = self._place.name
        found, skipped = cursor.skip_past(name)
        if found:
            self._searched = None
            self._go_hot(self._source.tail.number_after(name))
            return
        self._searched += skipped
        if cursor.stands:
            self._stand()
        elif cursor.offset > self._search_end or self._searched >= _SEARCH_RECORDS:
            self._give_up_search(self._place)

    def _give_up_search(self, place: Place) -> None:
        first = self._search_first
        self._drop_cursor()
        if first is None or first <= place.offset:
            raise PlaceLost(place)
        self._pass_place(self._reached or place, first)

    def _pass_place(self, needed: Place, first: int) -> None:
        """Go on at the log's first batch, the place being eaten. Raises LogGap unless all that was
        eaten was done with, up to `needed`.
        """
        if first > needed.offset + 1:
            raise LogGap(needed, first)
        self._place = None  # the eaten batches were done with

    def _stand(self) -> None:
        self._stands = True
        self._drop_cursor()

    def _go_hot(self, number: int | None) -> None:
        if number is not None:
            self._drop_cursor()
            self._hot = number

    def _drop_cursor(self) -> None:
        if self._cursor is not None:
            self._cursor.leave()
            self._cursor = None
