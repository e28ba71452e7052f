"""Waiting for changes, cheaper than a task or an event for each waiter."""

from __future__ import annotations

import asyncio
from typing import Any


class Waiters:
    """Futures ended together by `wake`, in order of arrival: a set orders by memory address, which
    would make trials of the same seed differ.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], None] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, waiter: asyncio.Future[None]) -> None:
        self._waiting[waiter] = None

    def discard(self, waiter: asyncio.Future[None]) -> None:
        self._waiting.pop(waiter, None)

    def wake(self) -> None:
        """End all present waits; a wait that begins later lasts until the next call."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        self._waiting.clear()

    async def wait(self) -> None:
        """Wait until the next `wake`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.add(waiter)
        try:
            await waiter
        finally:
            self.discard(waiter)


class Signal:
    """Event like `asyncio.Event`, but several can be waited for without a task for each: such tasks
    cost more than all other work on a small batch.
    """

    __slots__ = ("_is_set", "_waiters")

    def __init__(self) -> None:
        self._is_set = False
        self._waiters = Waiters()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._waiters.wake()

    def clear(self) -> None:
        self._is_set = False

    async def wait(self) -> None:
        """Wait until the signal is set."""
        await first_of(self)


async def set_within(seconds: float | None, event: asyncio.Event | Signal) -> bool:
    """Wait until `event` is set, `seconds` at most (None: for ever). Returns False on time-out."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def first_of(*signals: Signal, waiter: asyncio.Future[None] | None = None) -> None:
    """Wait until a signal is set or `waiter` is done; `waiter` ends in any case."""
    if waiter is None:
        waiter = asyncio.get_running_loop().create_future()
    if any(signal.is_set() for signal in signals):
        waiter.cancel()
        return
    for signal in signals:
        signal._waiters.add(waiter)
    try:
        await waiter
    finally:
        for signal in signals:
            signal._waiters.discard(waiter)


async def until_first_ends(*works: asyncio.Task[Any]) -> None:
    """Wait until the first of the tasks ends, and end the others. Raises what the first one did.

    Unlike a TaskGroup, of an end from outside and a failure within this forgets neither.
    """
    try:
        done, _ = await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
        for work in done:
            work.result()
    finally:
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
