"""Queue of a flow: the batches that the site's reader hands over, in log order.

While the flow stands, the reader continues and the queue misses batches (`behind`). Later the queue
reads the log again with a cursor of its own, from the flow's last settled place until the reader
may hand over batches again. So a flow that stands for a day holds no messages.

Batches of the site's own messages wait a moment for more: nobody waits for them, and to judge and
record one batch costs as much as dozens. They wait no longer once a batch of another origin comes
that may repeat their messages (`take_gathered`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import NamedTuple

from relay.batches.batch import BatchKind, Flow, LoggedBatch, Place
from relay.delivery.context import DeliveryContext
from relay.delivery.settlement import Point
from relay.log.reader import LogGap
from relay.waiters import Signal, set_within

QUEUE_BATCHES = 64
QUEUE_BYTES = 2 * 1024 * 1024
PLENTY_ENTRIES = 128
"""Messages for which a chunk goes ahead of the former's answers: small chunks gain nothing by that,
and each costs its write and its sync."""
GATHER_S = 0.05
GATHER_ENTRIES = 256
"""Messages of the site's own that wait for no more: a chunk."""
REREAD_BYTES = 256 * 1024


class Job(NamedTuple):
    """Batch for a flow, and the point where the batch stands. `before` is the place of the batch
    before in the log, or None for the log's start.
    """

    point: Point
    batch: LoggedBatch
    before: Place | None


class FlowQueue:
    """One flow's batches. The reader calls `offer`; the flow's worker iterates over `jobs`."""

    def __init__(self, flow: Flow, context: DeliveryContext) -> None:
        self.standing = ""
        """Reason why the worker stands, or empty; the reader waits for no standing worker."""
        self._flow = flow
        self._context = context
        self._jobs: deque[Job] = deque()
        self._bytes = 0
        self._changed = Signal()
        self.has_plenty = Signal()
        """Signal, set while there is enough for a chunk that goes ahead."""
        self._entries = 0
        self._gathers = flow.origin == context.settings.cluster_id
        self._gathering: asyncio.TimerHandle | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._behind = False
        self._rereading = False
        self._gap: LogGap | None = None

    @property
    def is_empty(self) -> bool:
        """True if nothing is left of the batches that the reader met for this flow."""
        return not (self._jobs or self._behind or self._rereading)

    def offer(self, job: Job) -> None:
        """Take the next batch, or miss the batch when there is no room."""
        if self._behind:
            return
        if self._room.is_set():
            self._jobs.append(job)
            self._bytes += len(job.batch.data)
            self._entries += job.batch.header.entry_count
            if len(self._jobs) >= QUEUE_BATCHES or self._bytes >= QUEUE_BYTES:
                self._room.clear()
            elif self._gathers and self._waits_for_more(job.batch):
                return
        else:
            self._behind = True
        if self._entries >= PLENTY_ENTRIES:
            self.has_plenty.set()
        self.hurry()

    def _waits_for_more(self, batch: LoggedBatch) -> bool:
        if batch.header.kind is not BatchKind.MESSAGES:
            return False  # a repair is delivered
        if self._entries >= GATHER_ENTRIES:
            return False
        if self._gathering is None:
            self._gathering = asyncio.get_running_loop().call_later(GATHER_S, self.hurry)
        return True

    def hurry(self) -> None:
        """Have the worker take what is there now."""
        self._stop_gathering()
        self._changed.set()

    def take_gathered(self) -> list[Job]:
        """Return the batches that wait for more, and leave none."""
        return self._take() if self._gathering is not None else []

    def _stop_gathering(self) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None

    async def room(self, timeout_s: float) -> None:
        """Wait a little for room, unless the flow stands anyway."""
        if self._room.is_set() or self._behind or self.standing:
            return
        await set_within(timeout_s, self._room)  # if not, `offer` misses the batch

    async def jobs(self) -> AsyncIterator[list[Job]]:
        """Yield all batches at hand, each time, until the node stops. Raises LogGap."""
        while not self._context.stopping.is_set():
            if self._gap is not None:
                gap, self._gap = self._gap, None
                raise gap
            if self._jobs and self._gathering is None:
                yield self._take()
            elif self._behind:
                async for jobs in self._reread():
                    yield jobs
                yield []  # for the worker to see that nothing is left
            else:
                self._changed.clear()
                await self._context.unless_stopping(self._changed)
        if self._gathers and self._jobs:
            yield self._take()  # else the next start would read them again

    def met_gap(self, gap: LogGap) -> None:
        """Have the worker stop at a gap that the redelivery has met."""
        self._gap = gap
        self.hurry()

    def begin_again(self) -> None:
        """Read whatever the flow has not settled from the log anew."""
        self._empty(behind=True)

    def _take(self) -> list[Job]:
        jobs = list(self._jobs)
        self._clear()
        return jobs

    async def _reread(self) -> AsyncIterator[list[Job]]:
        """Yield the missed batches from the log, up to the batch from which on the queue has all.

        The cursor never passes the site's reader, which will offer the batches behind its place.
        """
        context, settlement = self._context, self._context.settlement
        number, place, _ = settlement.point_of(self._flow)
        if place == settlement.reader.place:
            self._empty(behind=False)
            return
        rejoin: Place | None = None
        is_complete = False
        sent_back = settlement.times_sent_back
        self._rereading = True
        reader = context.log.reader(place, name=f"flow {self._flow.exchange}@{self._flow.origin}")
        try:
            while not context.stopping.is_set():
                place = reader.place
                batches = await context.next_batches(reader, REREAD_BYTES)
                if batches is None:
                    return
                if settlement.times_sent_back != sent_back:
                    # The site's reader met other batches, at another place: begin again.
                    return
                jobs: list[Job] = []
                for batch in batches:
                    number += 1
                    name = batch.place.name
                    if name.series.flow == self._flow and context.wants(batch):
                        whole = context.counted(batch.header)
                        jobs.append(Job(Point(number, batch.place, whole), batch, place))
                    place = batch.place
                    last = settlement.reader.place if self._behind else rejoin
                    if last is not None and last.name == name:
                        if self._behind:
                            self._empty(behind=False)
                        self._rereading = False
                        is_complete = True
                        yield jobs
                        return
                yield jobs
                if self._behind and reader.is_hot:
                    # Near enough: take the reader's next batches again, and end at its place.
                    rejoin = settlement.reader.place
                    self._empty(behind=False)
        finally:
            self._rereading = False
            if not is_complete:
                self._empty(behind=True)  # or the flow would seem to have nothing to do
            await reader.close()

    def _empty(self, *, behind: bool) -> None:
        """Drop the queued batches, which the log still has; `behind`: miss further offers."""
        self._clear()
        self._behind = behind

    def _clear(self) -> None:
        self._jobs.clear()
        self._bytes = self._entries = 0
        self.has_plenty.clear()
        self._room.set()
        self._stop_gathering()
