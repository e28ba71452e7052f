"""Event loop whose clock jumps to the next timer: hours pass in milliseconds, the same each run.

For code without sockets, threads and subprocesses. Waiting while nothing is scheduled would last
for ever: an error here.
"""

from __future__ import annotations

import asyncio
import itertools
import selectors
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any, TypeVar

from simulation.os_process import ProcessCallback, owner_of

T = TypeVar("T")


class NothingWillHappen(Exception):
    """Deadlock: every task waits for something that no timer and no other task will bring."""


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise NothingWillHappen
        self.now += timeout
        return super().select(0)


class _NumberedTask(asyncio.Task[Any]):
    """Task with a number for its hash: by address, the tasks of a set would be woken or cancelled
    in another order in each process.
    """

    def __init__(self, number: int, *args: Any, **options: Any) -> None:
        self._number = number  # before asyncio puts it into a set of its own
        super().__init__(*args, **options)

    def __hash__(self) -> int:
        return self._number


class _NumberedFuture(asyncio.Future[Any]):
    """Future with a number for its hash, like `_NumberedTask`."""

    def __init__(self, number: int, *, loop: asyncio.AbstractEventLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Loop whose `time()` begins at 0 and jumps only while every task waits.

    The clock also creeps by a nanosecond at each reading: of two timers for the same delay the
    first set fires first, which asyncio's heap does not ensure for equal times.
    """

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        self._numbers = itertools.count(1)
        super().__init__(self._jumping)
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        self._jumping.now += 1e-9
        return self._jumping.now

    def stand_still(self, seconds: float) -> None:
        """Skip time as if the process had been stopped: all timers of that time are due now."""
        self._jumping.now += seconds

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if context is None:  # an empty context is false
            context = copy_context()
        owner = owner_of(context)
        if owner is None or isinstance(callback, ProcessCallback):
            return super().call_soon(callback, *args, context=context)
        step = ProcessCallback(owner, context, callback, args)
        step.handle = super().call_soon(step, context=context)
        return step.handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        if context is None:  # an empty context is false
            context = copy_context()
        owner = owner_of(context)
        if owner is None:
            return super().call_at(when, callback, *args, context=context)
        step = ProcessCallback(owner, context, callback, args)
        step.handle = timer = super().call_at(when, step, context=context)
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        return _NumberedFuture(next(self._numbers), loop=self)

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        **options: Any,
    ) -> asyncio.Task[Any]:
        return _NumberedTask(next(self._numbers), work, loop=loop, **options)


def run_in_virtual_time(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine like `asyncio.run`, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
