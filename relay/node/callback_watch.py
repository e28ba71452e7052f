"""Callbacks of the event loop that fail: the process has to begin anew.

asyncio logs the exception of a callback and goes on. Whatever the callback was to wake, acknowledge
or append then stands for ever, unnoticed.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

OURS = frozenset({"dedup", "federation", "isthmus", "relay"})
"""Packages whose callbacks matter. Libraries' own callbacks fail as their connections end, which is
noticed anyway.
"""


class LoopCallbackFailed(Exception):
    """A callback failed; `__cause__` is its exception."""


class CallbackWatch:
    """Catches the first of a loop's callbacks that fails in our code. asyncio logs all of them as
    before.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._failed: asyncio.Future[None] = loop.create_future()
        loop.set_exception_handler(self._handle)

    async def run(self) -> None:
        """Wait until a callback fails. Raises LoopCallbackFailed."""
        await self._failed

    def _handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        loop.default_exception_handler(context)
        error = context.get("exception")
        # Without a handle: a task that nobody awaits, or a transport, which closes anyway.
        if "handle" not in context or error is None or self._failed.done():
            return
        if _passes_through_ours(error.__traceback__):
            failed = LoopCallbackFailed(f"{context['message']}: {error!r}")
            failed.__cause__ = error
            self._failed.set_exception(failed)


def _passes_through_ours(traceback: TracebackType | None) -> bool:
    while traceback is not None:
        if traceback.tb_frame.f_globals.get("__name__", "").partition(".")[0] in OURS:
            return True
        traceback = traceback.tb_next
    return False
