"""Process of an operating system: frozen by SIGSTOP, continued by SIGCONT.

A whole simulation runs in one event loop. The context of a task or callback names its process: each
inherits the context of its maker, and the loop looks there before running it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any

from dedup.store import StoreClosed

_OWNER: ContextVar[OsProcess | None] = ContextVar("process", default=None)


class OsProcess:
    """Process whose tasks and callbacks do not run while frozen; the rest goes on."""

    def __init__(self) -> None:
        self.is_frozen = False
        self.is_dead = False
        """True once killed: its tasks end as they are cancelled, and its store takes nothing more.
        """
        self.context = copy_context()
        """Context of everything that the process runs."""
        self.context.run(_OWNER.set, self)
        self._held: list[ProcessCallback] = []

    def freeze(self) -> None:
        """Freeze the process; without `go_on` it never ends."""
        self.is_frozen = True

    def go_on(self) -> None:
        """Continue, and run the due callbacks in their original order."""
        self.is_frozen = False
        loop = asyncio.get_running_loop()
        held, self._held = self._held, []
        for step in held:
            loop.call_soon(step, context=step.context)

    def hold(self, step: ProcessCallback) -> None:
        self._held.append(step)


class ProcessCallback:
    """One callback of a process; `handle` is the loop's, by which the maker may cancel it."""

    __slots__ = ("_args", "_call", "_process", "_was_held", "context", "handle")

    handle: asyncio.Handle

    def __init__(
        self,
        process: OsProcess,
        context: Context,
        call: Callable[..., object],
        args: tuple[Any, ...],
    ) -> None:
        self.context = context
        self._process = process
        self._call = call
        self._args = args
        self._was_held = False

    def __call__(self) -> None:
        if self._process.is_frozen:
            self._was_held = True
            self._process.hold(self)
        elif not (self._was_held and self.handle.cancelled()):
            try:
                self._call(*self._args)
            except StoreClosed:
                # Killed in the middle of this call; its writes are lost.
                if not self._process.is_dead:
                    raise


def owner_of(context: Context) -> OsProcess | None:
    """Return the process of a context, or None for code that cannot be frozen."""
    return context.get(_OWNER)
