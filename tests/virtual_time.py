"""An event loop whose clock jumps to the next timer: hours pass in milliseconds, the same each run.

For code without sockets, threads and subprocesses. When nothing is scheduled any more and the test
is still waiting, it will wait for ever: that is an error here.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class NothingWillHappen(Exception):
    """Every task waits for something that no timer and no other task will bring."""


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise NothingWillHappen
        self.now += timeout
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`time()` begins at 0 and jumps only while every task waits.

    It also creeps by a nanosecond whenever it is read: of two timers for the same delay the one
    that was set first fires first, which asyncio's heap does not see to for equal times.
    """

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        self._jumping.now += 1e-9
        return self._jumping.now

    def stand_still(self, seconds: float) -> None:
        """As if the process had been stopped for so long: all timers of that time are due now."""
        self._jumping.now += seconds


async def let_pass(seconds: float) -> None:
    """Let virtual time go by, where that nothing happens meanwhile is what is tested: there is no
    condition to wait for. In real time it is an error.
    """
    assert isinstance(asyncio.get_running_loop(), VirtualTimeLoop), "wait for a condition"
    await asyncio.sleep(seconds)


def run_in_virtual_time(main: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


def in_virtual_time(
    test: Callable[..., Coroutine[Any, Any, None]],
) -> Callable[..., None]:
    """Run an async test in virtual time; an hour at most."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def limited() -> None:
            async with asyncio.timeout(3600):
                await test(*args, **kwargs)

        run_in_virtual_time(limited())

    return run
