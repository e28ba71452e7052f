"""Waiting for a condition with a deadline: what tests do instead of sleeping."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any


async def until(
    condition: Callable[[], Any],
    what: str | Callable[[], str],
    within_s: float,
    *,
    every_s: float = 0.02,
) -> Any:
    """Wait until a condition, plain or async, gives something true, and return that.

    Raises TimeoutError with `what`, which may be a function that tells how far it got. What the
    condition raises goes through.
    """
    loop = asyncio.get_running_loop()
    limit = loop.time() + within_s
    while True:
        met = condition()
        if inspect.isawaitable(met):
            met = await met
        if met:
            return met
        if loop.time() >= limit:
            told = what if isinstance(what, str) else what()
            raise TimeoutError(f"not within {within_s:g} s: {told}")
        await asyncio.sleep(every_s)


def until_met(
    condition: Callable[[], Any],
    what: str | Callable[[], str],
    within_s: float,
    *,
    every_s: float = 0.02,
) -> Any:
    """`until` for tests that run no loop."""
    return asyncio.run(until(condition, what, within_s, every_s=every_s))
