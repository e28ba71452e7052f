"""Timer in whole milliseconds, the resolution of event loops."""

import asyncio
import math
from collections.abc import Callable


def call_not_before(
    loop: asyncio.AbstractEventLoop, when: float, callback: Callable[[], None]
) -> asyncio.TimerHandle:
    """Call back at `when` or up to 1 ms later, never earlier as `loop.call_at` may.

    uvloop rounds to the nearest millisecond, so a callback that finds nothing due yet and asks
    again would spin.
    """
    wait_ms = max(0, math.ceil((when - loop.time()) * 1000))
    return loop.call_later(wait_ms / 1000, callback)
