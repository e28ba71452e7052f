"""What an operating system does to a process: freezes it (SIGSTOP) and lets it go on (SIGCONT).

All of a simulation runs in one event loop. What belongs to a process is known by its context: tasks
and callbacks inherit that from whoever made them, and the loop asks it before it runs them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any

from dedup.store import StoreClosed

_OWNER: ContextVar[OsProcess | None] = ContextVar("process", default=None)


class OsProcess:
    """While it is frozen nothing that belongs to it runs; the rest of the world goes on."""

    def __init__(self) -> None:
        self.is_frozen = False
        self.is_dead = False
        """True once it was killed: its tasks end as they are cancelled, its store takes nothing."""
        self.context = copy_context()
        """What is begun in there belongs to it."""
        self.context.run(_OWNER.set, self)
        self._held: list[ProcessCallback] = []

    def freeze(self) -> None:
        """From now on; to be let go on, or it never ends."""
        self.is_frozen = True

    def go_on(self) -> None:
        """What was due meanwhile runs now, in the order in which it would have run."""
        self.is_frozen = False
        loop = asyncio.get_running_loop()
        held, self._held = self._held, []
        for step in held:
            loop.call_soon(step, context=step.context)

    def hold(self, step: ProcessCallback) -> None:
        self._held.append(step)


class ProcessCallback:
    """One callback of a process, `handle` what its maker may cancel it by."""

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
                # Killed in the middle of this call: so much for what it would have written.
                if not self._process.is_dead:
                    raise


def owner_of(context: Context) -> OsProcess | None:
    """Whose it is; None: nobody's that could be frozen."""
    return context.get(_OWNER)
