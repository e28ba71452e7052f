"""Tests in virtual time: see `simulation.virtual_time`."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

from simulation.virtual_time import NothingWillHappen, VirtualTimeLoop, run_in_virtual_time

__all__ = [
    "NothingWillHappen",
    "VirtualTimeLoop",
    "in_virtual_time",
    "let_pass",
    "run_in_virtual_time",
]


async def let_pass(seconds: float) -> None:
    """Let virtual time go by, where that nothing happens meanwhile is what is tested: there is no
    condition to wait for. In real time it is an error.
    """
    assert isinstance(asyncio.get_running_loop(), VirtualTimeLoop), "wait for a condition"
    await asyncio.sleep(seconds)


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
