"""Waits for what has to come, and says what did not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

START_WITHIN_S = 60.0


async def until(
    condition: Callable[[], Awaitable[bool]], what: str, within_s: float = START_WITHIN_S
) -> None:
    """Raises TimeoutError that says `what` did not come."""
    end = time.monotonic() + within_s
    while not await condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {within_s:g} s: {what}")
        await asyncio.sleep(0.1)
