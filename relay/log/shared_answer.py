"""A question that many ask at once, put once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from relay.log.site_log import SiteLogError

T = TypeVar("T")


class SharedAnswer(Generic[T]):
    """A question that is put once for all who ask it meanwhile, and never answered with what was
    found before it was asked.
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
        await asyncio.wait({task})  # which one asker's cancelling must not end
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
            task.exception()  # told to whoever waits; nobody waiting is no fault


def again(error: BaseException) -> BaseException:
    """The same error to raise in another task."""
    return type(error)(str(error)) if isinstance(error, SiteLogError) else error
