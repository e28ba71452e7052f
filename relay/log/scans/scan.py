"""A scan: one pass of reading over the log, with what it keeps for the readers that come
through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from relay.log.scans.stretch import Stretch
from relay.log.site_log import Record, SiteLogError
from relay.waiters import Waiters

T = TypeVar("T")

_WAKING_S = 0.0001
"""Cost of waking a link."""

_SHOW_BYTES = 512 * 1024
"""Most bytes that readers wait for to come together."""


class Member(Protocol):
    """A reader that comes through; `offset`: begin of what it wants next."""

    offset: int


class Scan:
    """A pass over the log. `LogScans` reads for the scan; `front` is the offset that it has come
    to.
    """

    def __init__(self, start: int) -> None:
        self.front = start
        self.shown = start
        """Offset up to which a reader is worth waking."""
        self.stretches: dict[int, Stretch] = {}
        """Stretches by numbers without gaps, from `first` on and before `end`."""
        self.first = 0
        self.end = 0
        self.members: dict[Member, None] = {}
        self.waiters = Waiters()
        self.room = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.linger: asyncio.TimerHandle | None = None
        self.error: BaseException | None = None
        self.is_open = False
        """True once reading has begun."""
        self.read_bytes = 0
        """Bytes read in all, counted like `kept_bytes`."""
        self._waking: asyncio.TimerHandle | None = None
        self._shown_bytes = 0
        self._reached = 0
        self._reached_number = 0
        self._awaited = start

    @property
    def kept_from(self) -> int:
        """Offset from which all is kept, up to the front."""
        return self.stretches[self.first].start if self.stretches else self.front

    @property
    def kept_bytes(self) -> int:
        return self.read_bytes - self.stretches[self.first].before if self.stretches else 0

    @property
    def ahead_bytes(self) -> int:
        """Bytes read that the foremost reader has not taken."""
        return self.read_bytes - self._reached

    @property
    def is_awaited(self) -> bool:
        """True if a reader waits for the next record."""
        return self.front <= self._awaited

    @property
    def has_forgettable(self) -> bool:
        """True if the first stretch may go: the foremost reader has passed it."""
        if not self.stretches:
            return False
        passed = self.first < self._reached_number
        return passed or not self.members or self.stretches[self.first].end <= self._awaited

    @property
    def worth(self) -> tuple[bool, int]:
        """Worth of the first stretch: True if a reader is still to come through, then its age."""
        first = self.stretches[self.first]
        return any(member.offset < first.end for member in self.members), first.age

    def begin_at(self, offset: int) -> None:
        """Begin earlier than planned."""
        self.front = self.shown = offset

    def take_in(
        self,
        records: Sequence[Record],
        newest_format: int,
        ages: Iterator[int],
        eaten_to: int | None = None,
    ) -> None:
        """Take in the next records of the log. `ages` numbers the stretches of all scans.
        `eaten_to`: offset before which retention may have eaten records from the front on.
        """
        if records[0].offset < self.front:
            # The log ends before the requested place, and these records are its last chunk.
            if self.end:
                records = [record for record in records if record.offset >= self.front]
            else:
                self.front = self.shown = records[0].offset  # all readers see these records
                for member in self.members:
                    member.offset = min(member.offset, self.front)
        stretch = self.stretches.get(self.end - 1)
        for record in records:
            if stretch is None or stretch.is_full or eaten_to is not None:
                self._come_to_end_of(stretch)
                stretch = Stretch(self.front, self.read_bytes, next(ages))
                if eaten_to is not None:
                    stretch.eaten_to, eaten_to = eaten_to, None
                self.stretches[self.end] = stretch
                self.end += 1
            stretch.add(record, newest_format)
        self._come_to_end_of(stretch)
        if self.read_bytes - self._shown_bytes >= _SHOW_BYTES:
            self.wake()
        elif self._waking is None:
            self._wake_soon()

    def _come_to_end_of(self, stretch: Stretch | None) -> None:
        if stretch is not None:
            self.front = stretch.end
            self.read_bytes = stretch.before + stretch.cost

    def _wake_soon(self) -> None:
        """Wake readers after a delay: waking hundreds of them for every chunk would cost too
        much.
        """
        delay = _WAKING_S * (len(self.members) - 1)
        if delay <= 0:
            self.wake()
        else:
            self._waking = asyncio.get_running_loop().call_later(delay, self.wake)

    def wait_for(self, offset: int) -> None:
        """Note that a reader can go on once this offset was read."""
        self._awaited = max(self._awaited, offset)
        self.room.set()

    def reached(self, number: int, index: int) -> None:
        """Note that a reader has taken all before this batch of this stretch."""
        stretch = self.stretches.get(number)
        cost = self.read_bytes if stretch is None else stretch.before + stretch.cost_to(index)
        if cost > self._reached:
            self._reached = cost
            self._reached_number = number
            self.room.set()

    def forget_first(self) -> None:
        del self.stretches[self.first]
        self.first += 1

    def locate(self, offset: int) -> tuple[int, int]:
        """Number of the stretch, and of the batch in it, at which reading on from `offset`
        begins.
        """
        low, high = self.first, self.end - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.stretches[middle].start <= offset:
                low = middle
            else:
                high = middle - 1
        return low, self.stretches[low].first_from(offset)

    def wake(self) -> None:
        """Wake all waiting readers, to look at what was read until now."""
        self.shown = self.front
        self._shown_bytes = self.read_bytes
        if self._waking is not None:
            self._waking.cancel()
            self._waking = None
        self.waiters.wake()


class SharedAnswer(Generic[T]):
    """Answer to a question that is put once for all who ask meanwhile. Nobody gets an answer found
    before asking.
    """

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._next: asyncio.Task[T] | None = None
        self.tasks: set[asyncio.Task[T]] = set()

    async def get(self) -> T:
        task = self._next
        if task is None:
            task = self._next = asyncio.create_task(self._put(set(self.tasks)))
            self.tasks.add(task)
            task.add_done_callback(self._answered)
        await asyncio.wait({task})  # cancelling one asker must not end the task
        error = task.exception()
        if error is not None:
            raise again(error)
        return task.result()

    async def _put(self, before: set[asyncio.Task[T]]) -> T:
        if before:
            await asyncio.wait(before)
        self._next = None
        return await self._ask()

    def _answered(self, task: asyncio.Task[T]) -> None:
        self.tasks.discard(task)
        if not task.cancelled():
            task.exception()  # raised in all who wait, if any do


def again(error: BaseException) -> BaseException:
    """Make the same error anew, to raise in another task."""
    return type(error)(str(error)) if isinstance(error, SiteLogError) else error
