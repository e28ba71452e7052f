"""When to wake: in whole milliseconds, which is as fine as event loops wait."""

import asyncio
import math
from collections.abc import Callable


def call_not_before(
    loop: asyncio.AbstractEventLoop, when: float, callback: Callable[[], None]
) -> asyncio.TimerHandle:
    """`loop.call_at`, but up to 1 ms late instead of early.

    uvloop rounds to the nearest millisecond, so a callback that finds nothing due yet and asks
    again would spin until it is.
    """
    wait_ms = max(0, math.ceil((when - loop.time()) * 1000))
    return loop.call_later(wait_ms / 1000, callback)
