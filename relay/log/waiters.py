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
