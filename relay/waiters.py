"""Who waits for something to change."""

from __future__ import annotations

import asyncio


class Waiters:
    """Futures that one `wake` ends together, in the order in which they came: a set's order is one
    of addresses in memory, and a trial of the same seed would not be the same trial.
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
        """End all of them; whoever comes from now on waits for the next call."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        self._waiting.clear()

    async def wait(self) -> None:
        """Until the next `wake`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.add(waiter)
        try:
            await waiter
        finally:
            self.discard(waiter)


class Signal:
    """As `asyncio.Event`, but several may be waited for without a task for each: such tasks cost
    more than all that is done about a small batch.
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
        """Until it is set."""
        await first_of(self)


async def set_within(seconds: float | None, event: asyncio.Event | Signal) -> bool:
    """Wait until `event` is set, `seconds` at most (None: for ever); whether it was."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def first_of(*signals: Signal, waiter: asyncio.Future[None] | None = None) -> None:
    """Until one of them is set, or the waiter is done, which ends with this in any case."""
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
